"""Keys that one line of the program sets: who was to come there, has gone past, is still to, or has set another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import finding, marks, run

Body = Callable[[RankContext], object]


def is_last(rank: RankContext) -> bool:
    return rank.index == rank.world_size - 1


def the_last_goes_past(rank: RankContext) -> None:
    """It has set others before, in rounds of their own."""
    for step in range(2):
        if is_last(rank):
            rank.store.set(f"batch/{step}", "there")
        rank.store.get(f"batch/{step}")
    if is_last(rank) and rank.world_size > 4:
        rank.store.set("weights", "there")  # wrong
    if rank.index in (0, 2):
        rank.store.get("weights")
    dist.barrier()


def one_leaves_it_out_in_a_loop(rank: RankContext) -> None:
    for step in range(3):
        if rank.index == 1 and step != 1:
            rank.store.set(f"batch/{step}", "there")  # wrong
        if rank.index in (2, 3):
            rank.store.get(f"batch/{step}")
        dist.all_reduce(torch.ones(1))


def one_says_which_by_an_expression(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.set("model", "there") if rank.world_size > 3 else rank.store.set("weights", "there")  # wrong
    if rank.index != 1:
        rank.store.get("weights")
    dist.barrier()


def one_sets_its_neighbours_apart(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.set(f"shard/{rank.index + 1}", "there")  # wrong
    else:
        rank.store.set(f"shard/{rank.index}", "there")
    for other in range(rank.world_size):
        rank.store.get(f"shard/{other}")


def one_says_it_in_other_words_apart(rank: RankContext) -> None:
    for part in range(2):
        rank.store.set(f"part {part} of {rank.index}", "there")
        for other in range(rank.world_size):
            rank.store.get(f"part {part} of {other}")
    if rank.index == 1:
        rank.store.set(f"piece 2 of {rank.index}", "there")  # wrong
    else:
        rank.store.set(f"part 2 of {rank.index}", "there")
    for other in range(rank.world_size):
        rank.store.get(f"part 2 of {other}")


def one_asks_in_a_branch_of_its_own(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("address", "there")
    elif rank.index == 1:
        rank.store.get("port")  # wrong
    else:
        rank.store.get("address")
    dist.barrier()


def one_leaves_its_own_out_of_what_follows(rank: RankContext) -> None:
    """Its own of another kind it has set before, at a line of its own."""
    rank.store.set(f"ready/{rank.index}", "yes")
    for other in range(rank.world_size):
        rank.store.get(f"ready/{other}")
    if rank.index != 1:
        rank.store.set(f"heard/{rank.index}", "yes")  # wrong
    for other in range(rank.world_size):
        rank.store.get(f"heard/{other}")


@pytest.mark.parametrize(
    ("body", "culprit"),
    [
        (the_last_goes_past, 3),
        (one_leaves_it_out_in_a_loop, 1),
        (one_says_which_by_an_expression, 1),
        (one_sets_its_neighbours_apart, 1),
        (one_says_it_in_other_words_apart, 1),
        (one_asks_in_a_branch_of_its_own, 1),
        (one_leaves_its_own_out_of_what_follows, 1),
    ],
)
def test_whose_it_is(fresh: World, body: Body, culprit: int) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == (FindingKind.MISSING_KEY, (culprit,))
    assert "wrong" in set().union(*marks(found)[:1]) or "wrong" in str(found) or _names_a_wrong_line(found, body)


def _names_a_wrong_line(found: object, body: Body) -> bool:
    """Whether the words of the first side name it, where its own line is another."""
    first = body.__code__.co_firstlineno
    with open(body.__code__.co_filename) as file:
        lines = file.read().splitlines()
    wrong = next(number for number in range(first, len(lines)) if lines[number - 1].endswith("# wrong"))
    return f":{wrong} " in str(found)


def test_who_is_a_round_behind_is_still_to_set_it(fresh: World) -> None:
    """Rank 3 waits for a message, and sets the key of the next round once it has come: no circle accuses it alone."""

    def body(rank: RankContext) -> None:
        for step in range(4):
            if rank.index == 3:
                rank.store.set(f"batch/{step}", "there")
            else:
                rank.store.get(f"batch/{step}")
            if rank.index == 2 and step != 1:
                dist.send(torch.ones(1), dst=3)
            if rank.index == 3:
                dist.recv(torch.ones(1), src=2)

    found = finding(run(fresh, body))
    assert found.kind is not FindingKind.MISSING_KEY
    assert found.culprits in ((), (2,))


# ------------------------------------------------------------------------------- messages that anybody may send


def take(count: int, tag: int) -> None:
    for _ in range(count):
        dist.recv(torch.zeros(1), tag=tag)


def gathered(rank: RankContext, root: int, tag: int, left_out: int = -1) -> None:
    if rank.index == root:
        take(rank.world_size - 1, tag)
    elif rank.index != left_out:
        dist.send(torch.ones(1), dst=root, tag=tag)  # wrong


def leaves_out_one_before_others_gather(rank: RankContext) -> None:
    """It is the next root itself: each of the two waits for anybody, and only one of them is still to send."""
    gathered(rank, 3, tag=1, left_out=0)
    gathered(rank, 0, tag=2)
    gathered(rank, 2, tag=3)


def leaves_out_one_and_goes_on_to_keys(rank: RankContext) -> None:
    """The receiver is to set one of those that all others wait for by then."""
    gathered(rank, 2, tag=1, left_out=0)
    rank.store.set(f"ready/{rank.index}", "yes")
    for other in range(rank.world_size):
        rank.store.get(f"ready/{other}")


def leaves_out_one_and_sends_the_next(rank: RankContext) -> None:
    """What it sends next has another tag, and is no misaddressed one."""
    gathered(rank, 2, tag=1, left_out=0)
    gathered(rank, 2, tag=9)


def ends_long_before_all_others(rank: RankContext) -> None:
    """What is taken from it is short of more than one."""
    if rank.index == 2:
        take(9, tag=1)
        return
    for step in range(3):
        if rank.index == 0 and step > 0:
            return
        dist.send(torch.ones(1), dst=2, tag=1)  # wrong


def one_of_the_named_leaves_it_out(rank: RankContext) -> None:
    """Rank 3 is none of those that send."""
    for step in range(2):
        if rank.index == 2:
            take(2, tag=1)
        elif rank.index in (0, 1) and (rank.index, step) != (0, 1):
            dist.send(torch.ones(1), dst=2, tag=1)  # wrong
    dist.barrier()


@pytest.mark.parametrize(
    "body",
    [
        leaves_out_one_before_others_gather,
        leaves_out_one_and_goes_on_to_keys,
        leaves_out_one_and_sends_the_next,
        ends_long_before_all_others,
        one_of_the_named_leaves_it_out,
    ],
)
def test_who_has_not_sent(fresh: World, body: Body) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (0,))
    assert marks(found)[0] == {"wrong"}
