"""Servers that answer whoever asks: the order of requests matters where the same answers lead to something else."""

from __future__ import annotations

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


def asks(rank: RankContext, times: int = 1) -> torch.Tensor:
    answer = torch.zeros(2)
    for _ in range(times):
        dist.send(torch.tensor([float(rank.index), 1.0]), dst=0)
        dist.recv(answer, src=0)
    return answer


def folds_what_was_asked(rank: RankContext) -> None:
    """The result is made of the requests, one after the other."""
    seen = torch.zeros(1)
    if rank.index == 0:
        table, folded = torch.arange(8.0).reshape(4, 2), 0.0
        for _ in range(rank.world_size - 1):
            wanted = torch.empty(2)
            who = dist.recv(wanted)  # takes
            dist.send(table[int(wanted[0])].clone(), dst=who)
            folded = folded * 7 + float(wanted[0])
        seen.fill_(folded)
    else:
        asks(rank)
    dist.broadcast(seen, src=0)


def keeps_them_in_a_list(rank: RankContext) -> list[float]:
    if rank.index:
        asks(rank)
        return []
    wanted, kept = torch.empty(2), []
    for _ in range(rank.world_size - 1):
        who = dist.recv(wanted)  # takes
        kept.append(float(wanted[0]))
        dist.send(torch.ones(2), dst=who)
    return kept


def both_ways_round_a_ring(rank: RankContext) -> float:
    """What is being sent meanwhile is in nobody's way."""
    size, row = rank.world_size, torch.full((8,), float(rank.index))
    right, left = (rank.index + 1) % size, (rank.index - 1) % size
    sending = [dist.isend(row, right), dist.isend(row, left)]
    one, other = torch.empty(8), torch.empty(8)
    if rank.index == 0:
        dist.recv(one)  # takes
        dist.recv(other)  # takes
    else:
        dist.recv(one, left)
        dist.recv(other, right)
    for work in sending:
        assert work is not None
        work.wait()
    return float((0.75 * one + 0.25 * other).sum())


@pytest.mark.parametrize("body", [folds_what_was_asked, keeps_them_in_a_list, both_ways_round_a_ring])
def test_what_comes_of_the_requests_is_a_matter_of_their_order(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.RACE, (0,))
    assert marks(found)[0] == {"takes"}


def adds_them_up(rank: RankContext) -> float:
    total = 0.0
    if rank.index:
        asks(rank)
    else:
        for _ in range(rank.world_size - 1):
            wanted = torch.empty(2)
            who = dist.recv(wanted)
            dist.send(wanted + 1, dst=who)
            total += float(wanted[0])
    return total


def hands_out_tickets(rank: RankContext) -> float:
    """To whoever comes next: what each does later goes by what it got."""
    if rank.index:
        ticket = asks(rank)
        dist.send(ticket, dst=0, tag=1)
        return 0.0
    owner = dict[int, int]()
    for number in range(1, rank.world_size):
        wanted = torch.empty(2)
        who = dist.recv(wanted)
        owner[number] = int(wanted[0])
        dist.send(torch.full((2,), float(number)), dst=who)
    total = 0.0
    for _ in range(rank.world_size - 1):
        ticket = torch.empty(2)
        who = dist.recv(ticket, tag=1)
        assert owner[int(ticket[0])] == who
        total += float(ticket[0])
    return total


def steps_by_whatever_comes(rank: RankContext) -> bool:
    """A parameter server: each gets the weights as they are then."""
    if rank.index:
        asks(rank, times=2)
        return True
    weights = torch.zeros(2)
    for _ in range(2 * (rank.world_size - 1)):
        gradient = torch.empty(2)
        who = dist.recv(gradient)
        weights = weights * 0.9 + gradient
        dist.send(weights.clone(), dst=who)
    return bool(weights.isfinite().all())


def one_tells_the_next(rank: RankContext) -> list[float]:
    """Who has been answered sends the next one: they come in no other order."""
    word = torch.zeros(1)
    if rank.index:
        if rank.index > 1:
            dist.recv(word, src=rank.index - 1, tag=3)
        asks(rank)
        if rank.index < rank.world_size - 1:
            dist.send(word, dst=rank.index + 1, tag=3)
        return []
    wanted, kept = torch.empty(2), []
    for _ in range(rank.world_size - 1):
        who = dist.recv(wanted)
        kept.append(float(wanted[0]))
        dist.send(torch.ones(2), dst=who)
    return kept


def adds_both_up(rank: RankContext) -> float:
    size, row = rank.world_size, torch.full((8,), float(rank.index))
    right, left = (rank.index + 1) % size, (rank.index - 1) % size
    sending = [dist.isend(row, right), dist.isend(row, left)]
    one, other = torch.empty(8), torch.empty(8)
    for taken in (one, other):
        dist.recv(taken)
    for work in sending:
        assert work is not None
        work.wait()
    return float((one + other).sum())


def by_who_asked(rank: RankContext) -> list[float]:
    if rank.index:
        asks(rank)
        return []
    wanted, kept = torch.empty(2), dict[int, float]()
    for _ in range(rank.world_size - 1):
        who = dist.recv(wanted)
        kept[who] = float(wanted[0])
        dist.send(torch.ones(2), dst=who)
    return [kept[each] for each in sorted(kept)]


@pytest.mark.parametrize(
    "body", [adds_them_up, hands_out_tickets, steps_by_whatever_comes, one_tells_the_next, by_who_asked, adds_both_up]
)
def test_where_it_is_none_or_each_gets_another_answer_nothing_is_said(fresh: World, body: Body) -> None:
    outcome = run(fresh, body, deadline=30)
    assert outcome.ok, outcome.summary()
