"""Dumps that torch itself has written, in real runs on gloo that hang."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from rankdrill import World
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.flight.explained import explain_dumps
from tests.explain.recording import PREFIX, is_there, late_in_a_group, late_rank, well
from tests.fixtures import fixture

pytestmark = pytest.mark.skipif(not is_there(), reason="this torch has no flight recorder for gloo")

DEADLINE_S = 120.0
SHORTLY_NS = 200_000_000
LATER_S = 600.0  # that a watchdog waits before it has dumps written


def explained(directory: Path, prefix: str = PREFIX) -> Explanation:
    for dump in directory.iterdir():
        os.utime(dump, (time.time() + LATER_S,) * 2)
    return explain_dumps([directory], prefix)


def test_who_does_not_come_is_named_with_the_line_where_the_others_wait(tmp_path: Path) -> None:
    with World(3) as world:
        world.run(late_rank, str(tmp_path), 1, deadline=DEADLINE_S).unwrap()
    for prefix in (PREFIX, "json_"):
        found = explained(tmp_path, prefix)
        (cause,) = found.causes
        assert (str(cause.finding.kind), cause.finding.culprits) == ("missing call", (1,))
        assert found.victims == (0, 2)
        assert "all_reduce #7 on 'default'" in cause.finding.step
    (cause,) = explained(tmp_path).causes
    waiting = next(side for side in cause.finding.sides if side.ranks == (0, 2))
    places = {(Path(site.file).name, site.function, site.via) for site in waiting.sites if site is not None}
    assert places == {("recording.py", "_meet", "all_reduce")}


def test_of_a_chain_over_two_groups_the_end_is_named(tmp_path: Path) -> None:
    with World(4) as world:
        world.run(late_in_a_group, str(tmp_path), 2, [1, 2, 3], deadline=DEADLINE_S).unwrap()
    found = explained(tmp_path)
    assert [cause.finding.culprits for cause in found.causes] == [(2,)]
    assert found.victims == (0, 1, 3)
    assert any("no dump tells the members of" in gap for gap in found.gaps)


def test_where_all_has_ended_nobody_is_named(tmp_path: Path) -> None:
    with World(3) as world:
        world.run(well, str(tmp_path), deadline=DEADLINE_S).unwrap()
    found = explained(tmp_path)
    assert found.causes == ()
    assert {rank for place in found.places for rank in place.ranks} == {0, 1, 2}


def test_dumps_just_written_accuse_nobody_who_may_be_late(tmp_path: Path) -> None:
    with World(3) as world:
        world.run(late_rank, str(tmp_path), 1, deadline=DEADLINE_S).unwrap()
    called_ns = json.loads((tmp_path / "json_0.json").read_text())["entries"][-1]["time_created_ns"]
    for dump in tmp_path.iterdir():
        os.utime(dump, ns=(called_ns + SHORTLY_NS,) * 2)
    found = explain_dumps([tmp_path], PREFIX)
    assert found.causes == ()
    assert any("rank 1 had not come to it" in fit for fit in found.fits)


def test_dumps_of_a_run_over_nccl_in_which_a_rank_leaves_a_call_out() -> None:
    found = explain_dumps([fixture("flight") / "nccl-torch-2.11.0-late"])
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("missing call", (1,))
    assert cause.finding.step == "all_reduce #31 on 'default'"
    (site,) = cause.finding.sides[0].sites
    assert site is not None
    assert (site.file, site.line) == ("/job/train.py", 46)
    assert found.victims == (0,)


def test_dumps_of_a_run_over_nccl_in_which_a_rank_is_late() -> None:
    found = explain_dumps([fixture("flight") / "nccl-torch-2.11.0-lost"])
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("missing call", (1,))
    assert cause.finding.step == "all_reduce #29 on 'default'"
    assert found.victims == (0, 2, 3)
    assert any("rank 1 may still be on its way" in fit for fit in found.fits)


def test_a_recorded_run_is_explained_as_ever() -> None:
    found = explain_dumps([fixture("flight") / "gloo-2.10"])
    (cause,) = found.causes
    assert (str(cause.finding.kind), cause.finding.culprits) == ("missing call", (2,))
    assert cause.finding.step == "broadcast #8 on 'default'"
    (site,) = cause.finding.sides[0].sites
    assert site is not None
    assert (site.file, site.line, site.function, site.via) == ("/job/train.py", 16, "train", "broadcast")
