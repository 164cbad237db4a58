"""The one catalogue of gathers has all of them, and whoever lists gathers takes them from there."""

from __future__ import annotations

from benchmarks.gathering.ours import WAYS as MEASURED

from rankdrill import gathers
from rankdrill.conformance.paths import OURS
from rankdrill.conformance.ways import WAYS

# A checkpoint is loaded by the way that saves it; what it loads is no gather.
OF_CHECKPOINTS = {"load_checkpoint", "Checkpoint"}
PUBLIC = set(gathers.__all__) - OF_CHECKPOINTS


def test_every_public_gather_is_in_the_catalogue() -> None:
    assert {way.gather for way in WAYS.values()} == PUBLIC


def test_every_public_gather_is_drilled() -> None:
    assert {WAYS[name].gather for name in OURS} == PUBLIC


def test_every_public_gather_that_replaces_one_is_measured() -> None:
    measured = {way.name.partition(",")[0] for way in MEASURED}
    assert measured == PUBLIC - {"gather", "gather_and_save_checkpoint"}
