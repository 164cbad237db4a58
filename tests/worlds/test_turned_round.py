"""One rank takes a collective and a message in another order than the others: it is told, and whoever waits is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.worlds.test_stores import marks

ODD = 2


def takes_in_turn(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


def from_one_list() -> None:
    """Whoever gives out the work has a list of its own."""
    rank, x = dist.get_rank(), torch.ones(1)

    def meets() -> None:
        dist.all_reduce(x)

    def takes() -> None:
        dist.recv(x, 0)  # odd

    if rank == 0:
        dist.all_reduce(x)
        for other in range(1, dist.get_world_size()):
            dist.send(x, other)
        return
    takes_in_turn([takes, meets] if rank == ODD else [meets, takes])


def from_one_list_of_all() -> None:
    """The others exchange, and it alone is in the collective."""
    rank, size, x = dist.get_rank(), dist.get_world_size(), torch.ones(1)

    def meets() -> None:
        dist.all_reduce(x)  # odd

    def exchanges() -> None:
        if rank % 2:
            dist.recv(x, (rank - 1) % size)
            dist.send(x, (rank + 1) % size)
        else:
            dist.send(x, (rank + 1) % size)
            dist.recv(x, (rank - 1) % size)

    takes_in_turn([meets, exchanges] if rank == ODD else [exchanges, meets])


def takes_it_after_they_met() -> None:
    rank, x = dist.get_rank(), torch.ones(1)
    later = rank == ODD

    def takes() -> None:
        dist.recv(x, 0)

    if rank == 0:
        for other in range(1, dist.get_world_size()):
            dist.send(x, other)
        dist.barrier()
        return
    if not later:
        takes()
    dist.barrier()  # odd
    if later:
        takes()


class Worker:
    def __init__(self, eager: bool) -> None:
        self.eager = eager
        self.found = torch.ones(1)

    def reports(self) -> None:
        dist.send(self.found, 0)  # odd

    def steps(self) -> None:
        if self.eager:
            self.reports()
        dist.all_reduce(self.found)
        if not self.eager:
            self.reports()


def sends_it_before_they_meet() -> None:
    rank, x = dist.get_rank(), torch.ones(1)
    if rank:
        Worker(rank == ODD).steps()
        return
    dist.all_reduce(x)
    for other in range(1, dist.get_world_size()):
        dist.recv(x, other)


class Reporter:
    def __init__(self, later: bool) -> None:
        self.later = later
        self.kept: list[torch.Tensor] = []

    def report(self, x: torch.Tensor) -> None:
        if self.later:
            self.kept.append(x)
        else:
            dist.send(x, 0)

    def flush(self) -> None:
        while self.kept:
            dist.send(self.kept.pop(), 0)


def takes_all_reports() -> None:
    for other in range(1, dist.get_world_size()):
        dist.recv(torch.ones(1), other)
    dist.barrier()


def keeps_it_for_later() -> None:
    rank, x = dist.get_rank(), torch.ones(1)
    if rank == 0:
        takes_all_reports()
        return
    reporter = Reporter(rank == ODD)
    reporter.report(x)
    dist.barrier()  # odd
    reporter.flush()


@pytest.mark.parametrize(
    "body",
    [from_one_list, from_one_list_of_all, takes_it_after_they_met, sends_it_before_they_meet, keeps_it_for_later],
)
def test_who_takes_two_calls_in_another_order_is_told(four: World, body: Callable[[], None]) -> None:
    (found,) = four.run(body, deadline=30).findings
    assert found.kind in (FindingKind.CALL_ORDERING, FindingKind.DEADLOCK)
    assert found.culprits == (ODD,)
    assert "odd" in marks(found)[0]


def leaves_one_of_them_out() -> None:
    """It comes to the barrier without its last message, and has none behind it."""
    rank, x = dist.get_rank(), torch.ones(1)
    if rank == 0:
        for other in range(1, dist.get_world_size()):
            for _ in range(3):
                dist.recv(x, other)
    else:
        for _ in range(2 if rank == ODD else 3):
            dist.send(x, 0)
    dist.barrier()


def forgets_to_report() -> None:
    """As `keeps_it_for_later`, but it has nothing behind the barrier that would send it."""
    rank, x = dist.get_rank(), torch.ones(1)
    if rank == 0:
        takes_all_reports()
        return
    if rank != ODD:
        Reporter(later=False).report(x)
    dist.barrier()


@pytest.mark.parametrize("body", [leaves_one_of_them_out, forgets_to_report])
def test_who_leaves_a_message_out_is_told_of_that(four: World, body: Callable[[], None]) -> None:
    (found,) = four.run(body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (ODD,))


def exchanges(x: torch.Tensor, peer: int, *, first: bool) -> None:
    if first:
        dist.send(x, peer)
        dist.recv(x, peer)
    else:
        dist.recv(x, peer)
        dist.send(x, peer)


def pairs_begin_alike() -> None:
    """Both of one pair send first, and both of the other receive."""
    rank = dist.get_rank()
    exchanges(torch.ones(1), rank ^ 1, first=rank < 2)


def test_circles_of_one_function_are_told_together(four: World) -> None:
    (found,) = four.run(pairs_begin_alike, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, ())
    assert set(found.ranks) == {0, 1, 2, 3}
