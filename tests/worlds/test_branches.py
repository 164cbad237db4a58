"""Branches for one rank alone: which of their calls is too many, which is left out, and which only comes too early."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

DEADLINE_S = 60.0
ODD = 3


def odd() -> bool:
    return dist.get_rank() == ODD


def found_on(body: Callable[..., None], *, with_context: bool = False) -> Finding:
    with World(4) as world:
        (finding,) = world.run_job(Job(body, with_context=with_context), deadline=DEADLINE_S).findings
        return finding


def has_nothing_to_gather() -> None:
    mine = torch.arange(0 if odd() else 3)
    if not mine.numel():
        dist.barrier()
        return
    counts = [torch.zeros(1) for _ in range(4)]
    dist.all_gather(counts, torch.tensor([float(mine.numel())]))
    dist.barrier()


def skips_a_step_but_for_its_barrier() -> None:
    for step in range(3):
        if odd() and step == 1:
            dist.barrier()
            continue
        dist.all_reduce(torch.ones(2))
        dist.barrier()


@pytest.mark.parametrize(
    ("body", "left_out"),
    [(has_nothing_to_gather, "all_gather #0"), (skips_a_step_but_for_its_barrier, "all_reduce #2")],
)
def test_what_a_branch_lacks_was_left_out(body: Callable[[], None], left_out: str) -> None:
    finding = found_on(body)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (ODD,))
    assert finding.lines[0].startswith(f"missing call: rank {ODD} leaves out {left_out} on 'default', at ")


def in_the_other_order() -> None:
    if odd():
        dist.barrier()
        dist.all_reduce(torch.ones(2))
    else:
        dist.all_reduce(torch.ones(2))
        dist.barrier()


def test_what_it_makes_after_it_was_not() -> None:
    finding = found_on(in_the_other_order)
    assert (finding.kind, finding.culprits) == (FindingKind.CALL_ORDERING, (ODD,))


def validates_alone() -> None:
    score = torch.zeros(1)
    for step in range(5):
        for gradient in (torch.ones(3, 3), torch.ones(3)):
            dist.all_reduce(gradient)
        if odd() and step == 2:
            dist.all_reduce(score)  # on top
    dist.barrier()


def test_what_only_one_comes_to_is_on_top() -> None:
    finding = found_on(validates_alone)
    assert (finding.kind, finding.culprits) == (FindingKind.EXTRA, (ODD,))
    (line,) = {site.line for site in finding.sides[0].sites if site is not None}
    assert line == validates_alone.__code__.co_firstlineno + 6


def turns_two_groups_round_in_one_step() -> None:
    halves = [dist.new_group([0, 1]), dist.new_group([2, ODD])]
    mine, x = halves[dist.get_rank() // 2], torch.ones(4)
    for step in range(5):
        if odd() and step == 2:
            dist.all_reduce(x, group=mine)
            dist.all_reduce(x)
            continue
        dist.all_reduce(x)
        dist.all_reduce(x, group=mine)


def test_who_turned_round_what_it_always_did_is_at_fault() -> None:
    finding = found_on(turns_two_groups_round_in_one_step)
    assert (finding.kind, finding.culprits) == (FindingKind.CALL_ORDERING, (ODD,))


def does_not_say_that_it_is_done(rank: RankContext) -> None:
    for epoch in range(3):
        if not (odd() and epoch == 2):
            rank.store.set(f"done/{epoch}/{rank.index}", "yes")  # before
        rank.store.wait([f"done/{epoch}/{other}" for other in range(4)])


def test_a_key_of_the_next_round_is_another_one() -> None:
    finding = found_on(does_not_say_that_it_is_done, with_context=True)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING_KEY, (ODD,))
    assert "has not set 'done/2/3' as 'done/1/3' before, at " in finding.lines[0]
