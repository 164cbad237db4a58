"""One call more by a rank that a loop calls back, or in a loop of its own, told from a call that it has left out.

What shows is the same: it is in another call than the others, which have come round to the next round.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

Body = Callable[[RankContext], None]


def average(row: torch.Tensor) -> None:
    dist.barrier()  # extra
    dist.all_reduce(row)


def stop_together() -> bool:
    word = torch.zeros(1)
    try:
        dist.broadcast(word, src=0)
    except KeyError:
        return True
    return bool(word)


def train(rank: RankContext, at_the_end: Callable[[], None] | None) -> None:
    for _ in range(3):
        for _ in range(2):
            if stop_together():
                return
        dist.all_reduce(torch.ones(4))
        if at_the_end is not None:
            at_the_end()


def called_back_at_the_end_of_a_round(rank: RankContext) -> None:
    train(rank, (lambda: average(torch.ones(1))) if rank.index == 1 else None)


def step() -> None:
    dist.broadcast(torch.ones(3), 0)


def evaluate() -> None:
    dist.barrier()  # extra


def evaluates_after_its_batches(rank: RankContext) -> None:
    for _ in range(4):
        for _ in range(3):
            step()
        for _ in range(1 if rank.index == 1 else 0):
            evaluate()


@pytest.mark.parametrize("body", [called_back_at_the_end_of_a_round, evaluates_after_its_batches])
def test_who_is_called_back_alone_makes_one_call_more(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.EXTRA, (1,))
    assert marks(found)[0] == {"extra"}


def leaves_its_batches_early(rank: RankContext) -> None:
    for _ in range(2):
        for batch in range(3):
            if rank.index == 1 and batch == 2:
                break
            step()
        dist.all_reduce(torch.ones(4))
        evaluate()


def goes_past_a_sum(rank: RankContext) -> None:
    for epoch in range(3):
        step()
        if rank.index == 1 and epoch == 1:
            continue
        dist.all_reduce(torch.ones(4))
        evaluate()


def has_a_helper_that_may_skip(rank: RankContext) -> None:
    """That its batches are told as three does not say that each is a call."""

    def some(batch: int) -> None:
        if rank.index != 1 or batch != 2:
            dist.broadcast(torch.ones(3), 0)

    for _ in range(2):
        for batch in range(3):
            some(batch)
        evaluate()


@pytest.mark.parametrize("body", [leaves_its_batches_early, goes_past_a_sum, has_a_helper_that_may_skip])
def test_who_left_one_out_is_told_so(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (1,))
