"""What a run raises is one failure to Hypothesis, however many ranks came to it, and another where another line did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis.internal.escalation import InterestingOrigin

from rankdrill import World
from rankdrill.faults import Plan


def fails_with_its_rank() -> None:
    raise ValueError(f"on rank {dist.get_rank()}")


def fails_elsewhere() -> None:
    raise ValueError("on every rank")


def all_but_one() -> None:
    if dist.get_rank() == 0:
        raise ValueError("here")
    dist.barrier()


def meets_twice() -> None:
    dist.all_reduce(torch.ones(1))
    dist.barrier()


RANKS = ((2, 0), (2, 1), (3, 2))


def origin(body: Any, size: int, plan: str = "") -> InterestingOrigin:
    with World(size) as world, pytest.raises(ExceptionGroup) as caught:
        world.run(body, plan=Plan.parse(plan) if plan else None).unwrap()
    return InterestingOrigin.from_exception(caught.value)


@pytest.mark.parametrize("body", [fails_with_its_rank, all_but_one])
def test_one_mistake_is_one_in_every_world(body: Any) -> None:
    assert origin(body, 2) == origin(body, 3)


def test_one_fault_is_one_in_every_world_and_on_every_rank() -> None:
    found = {origin(meets_twice, size, f"rank {rank}: skip at collective.all_reduce") for size, rank in RANKS}
    assert len(found) == 1


def test_another_line_is_another() -> None:
    assert origin(fails_with_its_rank, 2) != origin(fails_elsewhere, 2)


def test_the_group_still_has_all_of_them_and_is_equal_to_itself() -> None:
    with World(2) as world, pytest.raises(ExceptionGroup) as caught:
        world.run(fails_with_its_rank).unwrap()
    group = caught.value
    assert {str(error) for error in group.exceptions} == {"on rank 0", "on rank 1"}
    assert group == group
    assert hash(group) == hash(group)
    assert group != ExceptionGroup(group.message, group.exceptions)
    assert type(group.split(ValueError)[0]) is ExceptionGroup
