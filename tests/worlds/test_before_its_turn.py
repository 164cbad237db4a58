"""Of two that wait for each other in two groups, the one that has left out what it always did first."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind

DEADLINE_S = 60.0
ODD = 3


def evaluates(group: dist.ProcessGroup) -> None:
    if dist.get_rank() in (0, ODD):
        dist.all_reduce(torch.ones(1), group=group)  # evaluates
    dist.broadcast(torch.ones(1), src=0)


def averages_after_it_evaluates_in_the_third_step() -> None:
    group = dist.new_group([0, ODD])
    assert group is not None
    for step in range(5):
        if dist.get_rank() == ODD and step == 2:
            evaluates(group)
            dist.all_reduce(torch.ones(2))
        else:
            dist.all_reduce(torch.ones(2))
            evaluates(group)
    dist.barrier()


def differs_from_the_first_step_on() -> None:
    """Those that are not in the group go the way of rank 0: so many as that do what the source has for all others."""
    group = dist.new_group([0, ODD])
    assert group is not None
    if dist.get_rank() == ODD:
        evaluates(group)
        dist.all_reduce(torch.ones(2))
    else:
        dist.all_reduce(torch.ones(2))
        evaluates(group)


def each_goes_a_way_of_its_own() -> None:
    """Nobody knows what either used to do, and the others had no choice."""
    group = dist.new_group([0, ODD])
    assert group is not None
    if dist.get_rank() == ODD:
        evaluates(group)
        dist.all_reduce(torch.ones(2))
    elif dist.get_rank() == 0:
        dist.all_reduce(torch.ones(2))
        evaluates(group)
    else:
        dist.all_reduce(torch.ones(2))


def found_on(body: Callable[[], None]) -> Finding:
    with World(4) as world:
        (finding,) = world.run(body, deadline=DEADLINE_S).findings
        return finding


def test_who_came_too_early_is_at_fault() -> None:
    finding = found_on(averages_after_it_evaluates_in_the_third_step)
    assert finding.culprits == (ODD,)
    assert finding.kind in (FindingKind.CALL_ORDERING, FindingKind.DEADLOCK)
    assert {site.function for site in finding.sides[0].sites if site is not None} == {"evaluates"}


def test_who_is_alone_in_its_branch_is_at_fault() -> None:
    assert found_on(differs_from_the_first_step_on).culprits == (ODD,)


def test_without_a_custom_it_is_as_likely_the_other() -> None:
    assert found_on(each_goes_a_way_of_its_own).culprits == ()
