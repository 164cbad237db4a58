"""Who failed, and meets the others in another call on its way out, is lost; who catches its error is not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind

DEADLINE_S = 30.0


def labels(rank: int = 1) -> int:
    return {"train": 1}["test" if dist.get_rank() == rank else "train"]


def loads(rank: int = 1) -> None:
    found = labels(rank)  # fails
    dist.all_reduce(torch.tensor([found]))


def a_barrier_at_last() -> None:
    try:
        loads()
    finally:
        dist.barrier()


class Timed:
    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *raised: object) -> None:
        dist.barrier()


def a_with_that_ends_together() -> None:
    with Timed():
        loads()


@contextlib.contextmanager
def together() -> Iterator[None]:
    dist.barrier()
    try:
        yield
    finally:
        dist.broadcast(torch.ones(1), src=0)


def a_generator_that_ends_together() -> None:
    with together():
        loads()


def tells_and_raises() -> None:
    try:
        loads()
    except KeyError:
        dist.all_gather_object([None] * dist.get_world_size(), "failed")
        raise


def a_group_of_its_own_at_last() -> None:
    """Nothing mismatches: ranks 0 and 2 wait in one group, and rank 1 in another."""
    control = dist.new_group([0, 1, 2])
    try:
        loads()
    finally:
        dist.barrier(group=control)


LOST = (
    a_barrier_at_last,
    a_with_that_ends_together,
    a_generator_that_ends_together,
    tells_and_raises,
    a_group_of_its_own_at_last,
)


def catches_it_outside() -> None:
    for _ in range(2):
        try:
            with together():
                loads()
        except KeyError:
            continue


def catches_it_and_syncs() -> None:
    for _ in range(2):
        try:
            loads()
        except KeyError:
            dist.barrier()


def is_told_to_swallow_it() -> None:
    with contextlib.suppress(LookupError):
        a_barrier_at_last()
    dist.barrier()


def cleans_up_after_another_error() -> None:
    """The ``finally`` is not on the way out of anything."""
    try:
        labels()
    except KeyError:
        try:
            dist.broadcast(torch.ones(3), src=0)
        finally:
            dist.barrier()
    dist.all_reduce(torch.ones(1))


GOES_ON = (catches_it_outside, catches_it_and_syncs, is_told_to_swallow_it, cleans_up_after_another_error)


def name_of(body: object) -> str:
    return str(getattr(body, "__name__", body))


def found_in(world: World, body: Callable[..., Any], *args: Any) -> Finding:
    (finding,) = world.run(body, *args, deadline=DEADLINE_S).findings
    return finding


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(3) as made:
        yield made


@pytest.mark.parametrize("body", LOST, ids=name_of)
def test_that_it_failed_is_the_cause(world: World, body: Callable[[], None]) -> None:
    finding = found_in(world, body)
    assert (finding.kind, finding.culprits) == (FindingKind.LOST_RANK, (1,))
    (site,) = finding.sides[0].sites
    assert site is not None
    assert (site.file, site.line) == (__file__, labels.__code__.co_firstlineno + 1)
    assert finding.lines[0].startswith("lost rank: rank 1 raises KeyError: 'test', at ")
    assert " on the way out, at " in finding.lines[1]
    assert {0, 2} == set(finding.sides[-1].ranks)


@pytest.mark.parametrize("body", GOES_ON, ids=name_of)
def test_who_catches_it_is_not_lost(world: World, body: Callable[[], None]) -> None:
    finding = found_in(world, body)
    assert finding.kind is not FindingKind.LOST_RANK
    assert finding.culprits == (1,)


def test_of_two_ranks_it_is_the_one_that_failed() -> None:
    with World(2) as two:
        finding = found_in(two, a_barrier_at_last)
    assert (finding.kind, finding.culprits) == (FindingKind.LOST_RANK, (1,))


def fails_everywhere_and_parts() -> None:
    try:
        raise ValueError("on all")
    finally:
        if dist.get_rank() == 1:
            dist.all_reduce(torch.ones(1))
        else:
            dist.barrier()


def test_where_all_are_on_their_way_out_it_says_nothing(world: World) -> None:
    finding = found_in(world, fails_everywhere_and_parts)
    assert finding.kind is not FindingKind.LOST_RANK
