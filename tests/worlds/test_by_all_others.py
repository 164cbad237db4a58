"""Two ranks at odds, or in a circle, where what all others do at the same lines says which of the two is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import run

SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX
Body = Callable[[RankContext], None]


@pytest.fixture(scope="module")
def six() -> Iterator[World]:
    with World(6) as world:
        yield world


def swap(rank: RankContext, peer: int, tag: int, *, takes: int) -> None:
    """With a partner: the lower one sends first."""
    x = torch.ones(3)
    if rank.index < takes:
        dist.send(x, dst=peer, tag=tag)
        dist.recv(x, src=takes, tag=tag)
    else:
        dist.recv(x, src=takes, tag=tag)
        dist.send(x, dst=peer, tag=tag)


def sends_to_another_pair(rank: RankContext) -> None:
    partner = rank.index ^ 1
    for step in range(3):
        dist.all_reduce(torch.ones(1))
        swap(rank, (partner + 1) % 6 if rank.index == 2 else partner, step, takes=partner)


def sends_once_more_in_a_pair(rank: RankContext) -> None:
    partner = rank.index ^ 1
    for step in range(3):
        dist.all_reduce(torch.ones(1))
        swap(rank, partner, step, takes=partner)
        if (rank.index, step) == (2, 1):
            dist.send(torch.ones(3), dst=partner, tag=step)


@pytest.mark.parametrize("body", [sends_to_another_pair, sends_once_more_in_a_pair])
def test_a_message_of_pairs_between_two_sums(six: World, body: Body) -> None:
    (found,) = run(six, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (2,))


def in_halves(rank: RankContext, ops: Callable[[int], dist.ReduceOp.RedOpType]) -> None:
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    for step in range(2):
        dist.all_reduce(torch.ones(2), op=ops(step), group=halves[rank.index % 2])


def another_op_at_first(rank: RankContext) -> None:
    in_halves(rank, lambda step: MAX if rank.index == 3 else SUM)


def another_op_at_last(rank: RankContext) -> None:
    in_halves(rank, lambda step: MAX if rank.index == 3 and step else SUM)


@pytest.mark.parametrize("body", [another_op_at_first, another_op_at_last])
def test_an_op_that_the_other_half_has_by_that_line(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.OPERATOR, (3,))


def one_half_is_busy_before_the_last(rank: RankContext) -> None:
    """With a transfer, which two ranks are in, and which will be over."""
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    large = torch.ones(3 << 22 if rank.index in (0, 2) else 1)
    for step in range(2):
        if step and rank.index == 0:
            dist.send(large, dst=2)
        if step and rank.index == 2:
            dist.recv(large, src=0)
        op = MAX if rank.index == 3 and step else SUM
        dist.all_reduce(torch.ones(2), op=op, group=halves[rank.index % 2])


def test_the_other_half_is_left_to_come_to_that_line(fresh: World) -> None:
    (found,) = run(fresh, one_half_is_busy_before_the_last, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.OPERATOR, (3,))


def each_half_with_an_op_of_its_own(rank: RankContext) -> None:
    in_halves(rank, lambda step: SUM if rank.index % 2 == 0 or (rank.index == 3 and step) else MAX)


def test_an_op_that_each_half_chooses_says_nothing(fresh: World) -> None:
    (found,) = run(fresh, each_half_with_an_op_of_its_own, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.OPERATOR, ())


def takes_what_is_announced(rank: RankContext, without: Callable[[int], bool]) -> None:
    for epoch in range(3):
        if rank.index != 1 or not without(epoch):
            dist.all_reduce(torch.ones(1))
        if rank.index:
            rank.store.wait([f"model/{epoch}"])
        else:
            rank.store.set(f"model/{epoch}", "there")


def takes_no_part_in_any_sum(rank: RankContext) -> None:
    takes_what_is_announced(rank, lambda epoch: True)


def leaves_the_last_sum_out(rank: RankContext) -> None:
    takes_what_is_announced(rank, lambda epoch: epoch == 2)


@pytest.mark.parametrize("body", [takes_no_part_in_any_sum, leaves_the_last_sum_out])
def test_who_waits_for_a_key_behind_a_call_that_it_left_out(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (1,))
    assert "waits for the key 'model/" in str(found)


def sends_in_two_parts(rank: RankContext, turned: Callable[[RankContext, int], bool]) -> None:
    """How long it is, and then the whole, which is too large for a send that nobody receives."""
    head, body = torch.ones(1), torch.ones(1 << 20)
    if rank.index == 0:
        for other in range(1, rank.world_size):
            for _ in range(2):
                dist.recv(head, src=other, tag=1)
                dist.recv(body, src=other, tag=2)
        return
    for verse in range(2):
        if turned(rank, verse):
            dist.send(body, dst=0, tag=2)
            dist.send(head, dst=0, tag=1)
            continue
        dist.send(head, dst=0, tag=1)
        dist.send(body, dst=0, tag=2)


def turns_its_last_round(rank: RankContext) -> None:
    sends_in_two_parts(rank, lambda rank, verse: (rank.index, verse) == (2, 1))


def test_two_messages_that_another_sends_in_the_usual_order(fresh: World) -> None:
    (found,) = run(fresh, turns_its_last_round, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, (2,))


def leaves_its_last_but_one_out(rank: RankContext) -> None:
    for step in range(5):
        if rank.index == 1 and step == 3:
            continue
        dist.all_reduce(torch.ones(1))


def test_of_two_it_is_told_how_one_went_past_what_it_left_out_and_nobody_is_blamed(two: World) -> None:
    (found,) = run(two, leaves_its_last_but_one_out, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, ())
    assert "and goes past it by `if rank.index == 1 and step == 3`" in str(found)
