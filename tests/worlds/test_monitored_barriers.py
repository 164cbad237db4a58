"""A monitored barrier that a rank does not come to in time: that rank is told, not those that gave up."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome

TIMEOUT = timedelta(seconds=0.5)
DEADLINE_S = 60.0


def give_up(gave_up: Path, group: dist.ProcessGroup | None = None, *, all_of_them: bool = False) -> None:
    try:
        dist.monitored_barrier(group=group, timeout=TIMEOUT, wait_all_ranks=all_of_them)
    finally:
        gave_up.touch()


def wait_for(path: Path) -> None:
    until = time.monotonic() + DEADLINE_S
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)


def comes_late(directory: Path, late: int, members: list[int]) -> None:
    """The members meet, all but `late`, which comes when rank 0 of the group has given up.

    It is the group's rank 1, for which rank 0 waits first: so nobody else can be taken for late on a busy machine.
    """
    me, group = dist.get_rank(), dist.new_group(members)
    dist.all_reduce(torch.ones(1))
    if me == late:
        wait_for(directory / str(members[0]))
    if me in members:
        give_up(directory / str(me), group)


def does_not_come(directory: Path, those: list[int]) -> None:
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() not in those:
        give_up(directory / str(dist.get_rank()), all_of_them=True)


def has_trouble_of_its_own(directory: Path) -> None:
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        raise KeyError("trouble")
    give_up(directory / str(dist.get_rank()))


def run(size: int, body: object, *args: object) -> Outcome:
    with World(size) as world:
        return world.run(body, *args, deadline=DEADLINE_S)  # type: ignore[arg-type]  # bodies of several signatures


def test_who_comes_too_late_is_at_fault(tmp_path: Path) -> None:
    outcome = run(4, comes_late, tmp_path, 1, [0, 1, 2, 3])
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.STUCK_RANK, (1,))
    assert (outcome.culprits, outcome.victims) == ((1,), (0, 2, 3))
    late, gave_up = finding.lines
    assert late.startswith("stuck rank: rank 1 comes too late to monitored_barrier #0 on '")
    assert gave_up.startswith("rank 0 gave it up after 0.5 s, at ")
    assert "in give_up" in late
    assert "in give_up" in gave_up


def test_ranks_of_a_group_are_told_as_ranks_of_the_world(tmp_path: Path) -> None:
    """Its second member is rank 2, and gloo calls it rank 1."""
    outcome = run(4, comes_late, tmp_path, 2, [0, 2, 3])
    assert (outcome.culprits, outcome.victims) == ((2,), (0, 3))
    assert "rank 2 comes too late" in str(outcome.findings[0])


def test_all_who_never_come_are_at_fault(tmp_path: Path) -> None:
    outcome = run(3, does_not_come, tmp_path, [1, 2])
    assert (outcome.culprits, outcome.victims) == ((1, 2), (0,))
    left_out = outcome.findings[0].lines[0]
    assert left_out.startswith("missing call: ranks 1, 2 leave out monitored_barrier #1 on 'default', at ")
    assert "in give_up" in left_out, "where they should have come to it"


def test_an_error_of_its_own_says_more(tmp_path: Path) -> None:
    outcome = run(3, has_trouble_of_its_own, tmp_path)
    assert not outcome.findings
    assert (outcome.culprits, outcome.victims) == ((1,), (0, 2))
