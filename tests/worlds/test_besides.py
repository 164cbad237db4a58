"""One call more of who was asked for its rank, where as many did not make it: two ranks at odds, as on any laptop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

Body = Callable[[RankContext], Any]


def rank_zero_only(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any) -> Any:
        return function(*args) if dist.get_rank() == 0 else None

    return called


class Callbacks:
    """What a loop calls back, on all ranks."""

    def at_the_end(self, loss: torch.Tensor) -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(loss)  # besides


class Wrapped(Callbacks):
    @rank_zero_only
    def at_the_end(self, loss: torch.Tensor) -> None:
        self.log(loss)

    def log(self, loss: torch.Tensor) -> None:
        dist.all_reduce(loss)  # besides


def fit(callbacks: Callbacks) -> None:
    weights = torch.ones(3)
    for _ in range(3):
        dist.broadcast(weights, src=0)
        dist.all_reduce(weights)
        callbacks.at_the_end(torch.ones(1))
    dist.barrier()


def in_a_callback(rank: RankContext) -> None:
    fit(Callbacks())


def in_one_that_is_wrapped(rank: RankContext) -> None:
    fit(Wrapped())


def evaluate(weights: torch.Tensor) -> None:
    dist.all_reduce(weights)  # besides


def when_the_other_is_done(rank: RankContext) -> None:
    weights = torch.ones(3)
    dist.broadcast(weights, src=0)
    if rank.index == 0:
        evaluate(weights)


def of_the_same_kind_as_what_is_due(rank: RankContext) -> None:
    weights = torch.ones(3)
    for _ in range(2):
        dist.all_reduce(weights)
        if rank.index == 1:
            dist.all_reduce(torch.ones(1))  # besides
    dist.barrier()


@pytest.mark.parametrize(
    ("body", "culprit"),
    [
        (in_a_callback, 0),
        (in_one_that_is_wrapped, 0),
        (when_the_other_is_done, 0),
        (of_the_same_kind_as_what_is_due, 1),
    ],
)
def test_who_was_asked_for_its_rank_makes_one_call_more(two: World, body: Body, culprit: int) -> None:
    (found,) = run(two, body).findings
    assert (found.kind, found.culprits) == (FindingKind.EXTRA, (culprit,))
    assert marks(found)[0] == {"besides"}


def share(weights: torch.Tensor) -> None:
    dist.broadcast(weights, src=0)


def each_has_something_to_do(rank: RankContext) -> None:
    """Whoever is not the first does it in a function of its own; one of the two goes past it."""
    weights = torch.ones(3)
    for step in range(2):
        if rank.index == 0:
            dist.broadcast(weights, src=0)
        elif step == 0:
            share(weights)
        dist.all_reduce(weights)


def both_are_asked(rank: RankContext) -> None:
    weights = torch.ones(3)
    if rank.index == 0:
        dist.broadcast(weights, src=0)
    if rank.index == 1:
        dist.all_reduce(weights)
    dist.barrier()


@pytest.mark.parametrize("body", [each_has_something_to_do, both_are_asked])
def test_where_there_is_something_for_the_other_that_one_is_not_blamed_for_it(two: World, body: Body) -> None:
    (found,) = run(two, body).findings
    assert 0 not in found.culprits
    assert found.kind is not FindingKind.EXTRA
