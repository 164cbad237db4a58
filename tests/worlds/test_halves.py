"""A barrier that all but one pass before, and that one behind what it does alone: where it leaves its own half out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

Body = Callable[[RankContext], None]


@contextmanager
def first_alone() -> Iterator[None]:
    first = dist.get_rank() == 0
    if not first:
        dist.barrier()
    yield
    if first:
        dist.barrier()  # half


def fails_in_the_block(rank: RankContext) -> None:
    try:
        with first_alone():
            if rank.index == 0:
                raise FileNotFoundError("vocabulary")
    except FileNotFoundError:
        pass
    dist.all_reduce(torch.ones(2))


def load(rank: RankContext, cached: bool) -> None:
    if rank.index != 0:
        dist.barrier()
    words = 3 if rank.index else 4
    if words == 4 and cached:
        return
    if rank.index == 0:
        dist.barrier()  # half


def returns_before_its_half(rank: RankContext) -> None:
    load(rank, cached=rank.index == 0)
    dist.all_reduce(torch.ones(2))


@pytest.mark.parametrize(
    ("body", "way"),
    [
        (fails_in_the_block, "by an error at `yield`, at "),
        (returns_before_its_half, "by `if words == 4 and cached`, at "),
    ],
)
def test_who_leaves_its_half_out_is_told_with_its_own_line(fresh: World, body: Body, way: str) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (0,))
    assert marks(found)[0] == {"half"}
    assert way in found.lines[0]


def another_goes_past_its_half(rank: RankContext) -> None:
    if rank.index and rank.index != 2:
        dist.barrier()  # theirs
    if rank.index == 0:
        dist.barrier()
    dist.all_reduce(torch.ones(2))


def test_one_of_the_others_is_told_with_theirs(fresh: World) -> None:
    (found,) = run(fresh, another_goes_past_its_half, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (2,))


def test_whoever_fails_nowhere_meets_the_others(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        for _ in range(3):
            with first_alone():
                torch.ones(2)
        load(rank, cached=False)

    assert run(fresh, body).ok
