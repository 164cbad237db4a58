"""Receives from anybody that wait for ever: one of all others has sent less than they, or there is nothing left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

ROUNDS = 3


def take(count: int, tag: int = 0) -> None:
    for _ in range(count):
        dist.recv(torch.zeros(1), tag=tag)  # takes


def forgets_one_in_a_round(rank: RankContext) -> None:
    for step in range(ROUNDS):
        if rank.index == 2:
            take(3, tag=step)
        elif (rank.index, step) != (3, 1):
            dist.send(torch.ones(1), dst=2, tag=step)  # sends
        dist.barrier()


def never_sends(rank: RankContext) -> None:
    for _ in range(ROUNDS):
        if rank.index == 2:
            take(3)
        elif rank.index != 3:
            dist.send(torch.ones(1), dst=2)  # sends
        dist.barrier()


def returns_before_its_last(rank: RankContext) -> None:
    if rank.index == 2:
        take(3 * ROUNDS)
        return
    for step in range(ROUNDS):
        if (rank.index, step) != (3, ROUNDS - 1):
            dist.send(torch.ones(1), dst=2)  # sends


def leaves_out_what_is_taken_at_once(rank: RankContext) -> None:
    for step in range(ROUNDS):
        if rank.index == 2:
            works = [dist.irecv(torch.zeros(1)) for _ in range(3)]
            for work in works:
                assert work is not None
                work.wait()
        elif (rank.index, step) != (3, 1):
            dist.send(torch.ones(1), dst=2)  # sends
        dist.barrier()


@pytest.mark.parametrize(
    "body", [forgets_one_in_a_round, never_sends, returns_before_its_last, leaves_out_what_is_taken_at_once]
)
def test_who_has_sent_less_than_all_others(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (3,))
    assert marks(found)[0] == {"sends"}


def sends_elsewhere(rank: RankContext) -> None:
    if rank.index == 2:
        take(3)
    else:
        dist.send(torch.ones(1), dst=0 if rank.index == 3 else 2)  # sends
    dist.barrier()


def sends_with_another_tag(rank: RankContext) -> None:
    if rank.index == 2:
        take(3, tag=5)
    else:
        dist.send(torch.ones(1), dst=2, tag=5 + (rank.index == 3))  # sends
    dist.barrier()


@pytest.mark.parametrize("body", [sends_elsewhere, sends_with_another_tag])
def test_who_has_sent_it_astray(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (3,))
    assert marks(found)[0] == {"sends"}


def waits_for_its_answer_first(rank: RankContext) -> None:
    mine = torch.ones(1)
    if rank.index == 2:
        take(3)
        for other in (0, 1, 3):
            dist.send(mine, dst=other)
    elif rank.index == 3:
        dist.recv(mine, src=2)
        dist.send(mine, dst=2)
    else:
        dist.send(mine, dst=2)
        dist.recv(mine, src=2)


def test_who_comes_to_its_own_later(fresh: World) -> None:
    (found,) = run(fresh, waits_for_its_answer_first, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, (3,))


def takes_one_more(rank: RankContext) -> None:
    for step in range(ROUNDS):
        if rank.index == 2:
            take(3 + (step == 1))
        else:
            dist.send(torch.ones(1), dst=2)  # sends
        dist.barrier()


def takes_one_more_of_two(rank: RankContext) -> None:
    """The one that sends nothing may have another part: it makes up nothing of what is waited for."""
    if rank.index == 2:
        take(5)
    elif rank.index:
        for _ in range(2):
            dist.send(torch.ones(1), dst=2)  # sends
    dist.barrier()


@pytest.mark.parametrize("body", [takes_one_more, takes_one_more_of_two])
def test_who_takes_more_than_there_are(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (2,))
    assert marks(found) == [{"takes"}, {"sends"}]


def of_two_with_counts_of_their_own(rank: RankContext) -> None:
    if rank.index == 2:
        take(6)
    elif rank.index:
        for _ in range(rank.index):
            dist.send(torch.ones(1), dst=2)
    dist.barrier()


def test_where_each_has_another_count_nobody_can_say(fresh: World) -> None:
    (found,) = run(fresh, of_two_with_counts_of_their_own, deadline=30).findings
    assert found.culprits in ((), (2,))


def sends_once_more(rank: RankContext, before_others: bool = False) -> None:
    """Its second is taken for another one's where it comes before that, and that one's is left over."""
    if rank.index == 2:
        take(3)
        return
    if before_others and rank.index != 3:
        rank.store.get("sent")
    for _ in range(1 + (rank.index == 3)):
        dist.send(torch.ones(1), dst=2)  # sends
    if rank.index == 3:
        rank.store.set("sent", "twice")


def sends_both_before_all_others(rank: RankContext) -> None:
    sends_once_more(rank, before_others=True)


@pytest.mark.parametrize("body", [sends_once_more, sends_both_before_all_others])
def test_who_has_sent_more_than_all_others(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (3,))
    assert marks(found)[0] == {"sends"}


def feeds_for_one_round_less(rank: RankContext) -> None:
    """Two hand on what they get: both are held up by who feeds them, and the receiver is by them."""
    x = torch.ones(1)
    if rank.index == 0:
        for _ in range(ROUNDS - 1):
            dist.send(x, dst=1)
            dist.send(x, dst=3)
    elif rank.index == 2:
        take(2 * ROUNDS)
    else:
        for _ in range(ROUNDS):
            dist.recv(x, src=0)
            dist.send(x, dst=2)
    dist.barrier()


def test_who_is_held_up_by_others_that_are_is_not_to_blame(fresh: World) -> None:
    (found,) = run(fresh, feeds_for_one_round_less, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (0,))
