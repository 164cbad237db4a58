"""How many ranks there are does not change the verdict: of each kind one program, on 2, 24, 40 and 128 ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankdrill import World
from rankdrill.worlds.job import Job
from tests.catalogue.drilling import read
from tests.catalogue.programs import KINDS
from tests.catalogue.scaled import SCALED, Scaled, play_scaled
from tests.catalogue.scoring import Judged

DEADLINE_S, STUCK_S = 60.0, 3.0
EARLY_S = 20.0  # well before the deadline, on the busiest machine
MOST_LINES, WIDEST = 40, 1000  # of a report
MANY = 24
LARGER = (40, 128)
# Of 24 ranks each costs a CPU second. These are told as a size that differs is, or by one rank alone, or have another
# test with as many ranks; of the others every second.
BY_NIGHT = frozenset(
    {"operator mismatch", "root mismatch", "datatype mismatch", "memory layout", "input hazard", "request leak"}
    | {"leaked group", "lost rank", "stuck rank", "missing call"}
)


def _params() -> Iterator[object]:
    turns = itertools.count()
    for ranks in (2, MANY, *LARGER):
        for scaled in SCALED:
            at_night = ranks in LARGER or (ranks == MANY and (scaled.kind in BY_NIGHT or next(turns) % 2))
            marks = [pytest.mark.nightly] if at_night else []
            if ranks >= scaled.least:
                yield pytest.param(ranks, scaled, id=f"{scaled.name}-{ranks}", marks=marks)


@pytest.fixture(scope="module")
def worlds() -> Iterator[dict[int, World]]:
    """Those that are kept, by their number of ranks: the latest, for those of 128 are too many beside others."""
    kept: dict[int, World] = {}
    yield kept
    for world in kept.values():
        world.discard()


def world_of(ranks: int, kept: dict[int, World]) -> World:
    if ranks not in kept:
        while kept:
            kept.popitem()[1].discard()
        kept[ranks] = World(ranks)
    return kept[ranks]


@pytest.mark.parametrize(("ranks", "scaled"), [*_params()])
def test_the_verdict_is_the_same(worlds: dict[int, World], tmp_path: Path, ranks: int, scaled: Scaled) -> None:
    world = world_of(ranks, worlds)
    job = Job(play_scaled, (scaled.name, str(tmp_path)), with_context=True)
    outcome = world.run_job(job, deadline=STUCK_S if scaled.kind == "stuck rank" else DEADLINE_S)
    program = scaled.program(ranks)
    judged = Judged(program, read(outcome, program.file))
    assert judged.wrong_in == (), judged.verdict.text
    assert outcome.elapsed < EARLY_S
    lines = [*outcome.summary().splitlines(), *judged.verdict.text.splitlines()]
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= WIDEST


def test_each_kind_has_one() -> None:
    assert {scaled.kind for scaled in SCALED} == set(KINDS)
