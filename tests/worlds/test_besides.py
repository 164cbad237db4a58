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


def while_the_other_waits_for_its_message(rank: RankContext) -> None:
    weights = torch.ones(3)
    dist.all_reduce(weights)
    if rank.index == 0:
        dist.barrier()  # besides
    if rank.index == 0:
        dist.send(weights, dst=1)
    else:
        dist.recv(weights, src=0)


@pytest.mark.parametrize(
    ("body", "culprit"),
    [
        (in_a_callback, 0),
        (in_one_that_is_wrapped, 0),
        (when_the_other_is_done, 0),
        (while_the_other_waits_for_its_message, 0),
        (of_the_same_kind_as_what_is_due, 1),
    ],
)
def test_who_was_asked_for_its_rank_makes_one_call_more(two: World, body: Body, culprit: int) -> None:
    (found,) = run(two, body).findings
    assert (found.kind, found.culprits) == (FindingKind.EXTRA, (culprit,))
    assert marks(found)[0] == {"besides"}


def in_a_group_at_the_end(rank: RankContext) -> None:
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    loss = torch.ones(1)
    for _ in range(2):
        dist.all_reduce(loss, group=tensor[rank.index // 2])
        if rank.index == 0:
            dist.all_reduce(loss, group=data[rank.index % 2])  # besides
    dist.barrier()


def in_a_group_in_each_round(rank: RankContext) -> None:
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    loss = torch.ones(1)
    for _ in range(2):
        dist.all_reduce(loss)
        if rank.index == 0:
            dist.all_reduce(loss, group=data[rank.index % 2])  # besides
    dist.barrier()


@pytest.mark.parametrize("body", [in_a_group_at_the_end, in_a_group_in_each_round])
def test_so_it_is_in_a_group_of_two(four: World, body: Body) -> None:
    """The other member is as innocent as all others, and waits with them."""
    (found,) = run(four, body).findings
    assert (found.kind, found.culprits) == (FindingKind.EXTRA, (0,))
    assert marks(found)[0] == {"besides"}


def one_member_goes_past_it(rank: RankContext) -> None:
    """Both are asked in: that one of them is not there is not the other's fault."""
    group = dist.new_group([0, 2])
    for step in range(2):
        if rank.index == 2 and step == 1:
            continue
        if rank.index in (0, 2):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


def test_who_is_asked_in_and_alone_is_not_to_blame(four: World) -> None:
    (found,) = run(four, one_member_goes_past_it).findings
    assert 0 not in found.culprits


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
