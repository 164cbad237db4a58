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


def goes_past_a_branch_to_the_next_turn() -> None:
    """A layer may go by without a call: of one kind."""
    for depth in range(6):
        if depth % 2 == 0:
            dist.all_reduce(torch.ones(2))
        elif not (odd() and depth == 3):
            dist.broadcast(torch.ones(2), 0)


def goes_past_both_branches() -> None:
    for depth in range(6):
        if odd() and depth == 3:
            continue
        if depth % 2 == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), 0)


@pytest.mark.parametrize(
    ("body", "left_out"),
    [
        (has_nothing_to_gather, "all_gather #0"),
        (skips_a_step_but_for_its_barrier, "all_reduce #2"),
        (goes_past_a_branch_to_the_next_turn, "broadcast #3"),
        (goes_past_both_branches, "broadcast #3"),
    ],
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


def in_the_other_order_in_one_step() -> None:
    """What its branch makes last is written otherwise than the others have it."""
    mean = torch.ones(1)
    for step in range(3):
        table: list[object] = [None] * 4
        if odd() and step == 1:
            dist.all_gather_object(table, step)
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        else:
            dist.all_reduce(mean)
            dist.all_gather_object(table, step)


def takes_the_other_branch_of_two() -> None:
    """They come by turns, and each layer makes one of them: no way leads past both."""
    for depth in range(6):
        if depth % 2 == 0 or (odd() and depth == 3):
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), 0)


def takes_the_other_branch_of_three() -> None:
    for depth, kind in enumerate("abc" * 3):
        if kind == "a" or (odd() and depth == 4):
            dist.all_reduce(torch.ones(2))
        elif kind == "b":
            dist.broadcast(torch.ones(2), 0)
        else:
            dist.barrier()


@pytest.mark.parametrize(
    "body",
    [
        *(in_the_other_order, in_the_other_order_in_one_step),
        *(takes_the_other_branch_of_two, takes_the_other_branch_of_three),
    ],
)
def test_what_it_makes_after_it_was_not(body: Callable[[], None]) -> None:
    finding = found_on(body)
    assert (finding.kind, finding.culprits) == (FindingKind.CALL_ORDERING, (ODD,))


def sums_for_the_largest(step: int) -> None:
    plan = [dist.ReduceOp.SUM, dist.ReduceOp.MAX] * 2
    if odd():
        plan[step] = plan[step - 1]
    for op in plan:
        dist.all_reduce(torch.ones(2), op=op)


def sums_in_its_last_place() -> None:
    sums_for_the_largest(3)


def takes_the_largest_in_a_later_place() -> None:
    sums_for_the_largest(2)


@pytest.mark.parametrize("body", [sums_in_its_last_place, takes_the_largest_in_a_later_place])
def test_another_reduce_op_by_one_line_is_no_call_left_out(body: Callable[[], None]) -> None:
    finding = found_on(body)
    assert (finding.kind, finding.culprits) == (FindingKind.OPERATOR, (ODD,))


def leaves_a_turn_out() -> None:
    """Of roots that follow each other by one line."""
    for _ in range(2):
        for root in range(4):
            if not (odd() and root == 1 and _ == 1):
                dist.broadcast(torch.ones(2), root)


def test_another_root_by_one_line_may_be_one() -> None:
    finding = found_on(leaves_a_turn_out)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (ODD,))


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
