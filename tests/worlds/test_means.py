"""A machine that lacks what ranks need: an error of ours that says what, before any of them is started."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from rankdrill.errors import UnsupportedPlatform
from rankdrill.worlds import World
from rankdrill.worlds.processes import means


def test_too_few_descriptors_for_the_ranks() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with World(200) as world:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
        try:
            with pytest.raises(UnsupportedPlatform) as refused:
                world.run(int)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    said = r"a world of 200 ranks takes 608 file descriptors here, and \d+ are free \(ulimit -n is 512\); raise it to "
    assert re.match(said, str(refused.value))


def test_without_proc_there_are_no_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(means, "PROC", tmp_path / "proc")
    with (
        World(2) as world,
        pytest.raises(UnsupportedPlatform, match=r"ranks need .*/proc, which is not here .*; mount"),
    ):
        world.run(int)
