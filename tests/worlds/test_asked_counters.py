"""Counters of a store: asked for by adding nothing, which is a get as any other, and counted up to a meeting."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import finding, marks, run


def asks_and_sets(rank: RankContext) -> None:
    rank.store.add("samples", 0)
    dist.barrier()
    for _ in range(5):
        if rank.index == 3:
            seen = rank.store.add("samples", 0)
            rank.store.set("samples", str(seen + 2))  # set
        else:
            rank.store.add("samples", 2)
    dist.barrier()


def asks_only_in_the_last_round(rank: RankContext) -> None:
    for step in range(4):
        dist.all_reduce(torch.ones(2))
        if rank.index == 1 and step == 3:
            seen = rank.store.add("samples", 0)
            rank.store.set("samples", str(seen + 1))  # set
        else:
            rank.store.add("samples", 1)


@pytest.mark.parametrize(("body", "who"), [(asks_and_sets, 3), (asks_only_in_the_last_round, 1)])
def test_who_asks_for_a_counter_and_sets_it_undoes_what_others_add(
    fresh: World, body: Callable[[RankContext], None], who: int
) -> None:
    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("lost update", (who,))
    assert marks(found)[0] == {"set"}
    assert f"rank {who} adds 0 to 'samples' at " in str(found)


def waits_for_all_and_begins_anew(rank: RankContext) -> None:
    """Rank 0 waits until all have counted themselves, and only then sets the counter back."""
    for _ in range(3):
        dist.barrier()
        if rank.index:
            rank.store.add("there", 1)
            continue
        while rank.store.add("there", 0) < rank.world_size - 1:
            time.sleep(0.001)
        rank.store.set("there", "0")


def waits_for_all_and_takes_them_away(rank: RankContext) -> None:
    for _ in range(3):
        dist.barrier()
        if rank.index:
            rank.store.add("there", 1)
            continue
        while (there := rank.store.add("there", 0)) < rank.world_size - 1:
            time.sleep(0.001)
        rank.store.set("there", str(there - rank.world_size + 1))


def takes_turns(rank: RankContext) -> None:
    """Each counts on once it has the turn, and gives it to the next."""
    if rank.index == 0:
        rank.store.set("total", "0")
    dist.barrier()
    while rank.store.add("turn", 0) != rank.index:
        time.sleep(0.001)
    total = int(rank.store.get("total"))
    rank.store.set("total", str(total + 1))
    rank.store.add("turn", 1)
    dist.barrier()


def each_asks_for_its_own(rank: RankContext) -> None:
    mine = f"seen/{rank.index}"
    for _ in range(3):
        seen = rank.store.add(mine, 0)
        rank.store.set(mine, str(seen + 1))
    dist.barrier()


def only_one_ever_changes_it(rank: RankContext) -> None:
    for _ in range(3):
        seen = rank.store.add("epoch", 0)
        dist.barrier()
        if rank.index == 0:
            rank.store.set("epoch", str(seen + 1))
        dist.barrier()


@pytest.mark.parametrize(
    "body",
    [
        waits_for_all_and_begins_anew,
        waits_for_all_and_takes_them_away,
        takes_turns,
        each_asks_for_its_own,
        only_one_ever_changes_it,
    ],
)
def test_who_asks_for_a_counter_may_know_that_nobody_adds_to_it(
    fresh: World, body: Callable[[RankContext], None]
) -> None:
    assert run(fresh, body).ok


def test_who_leaves_out_a_round_of_a_barrier_by_hand_has_not_counted_itself(fresh: World) -> None:
    """What it has set before, as all have, was for the round before."""

    def body(rank: RankContext) -> None:
        for epoch in range(4):
            if rank.index == 2 and epoch == 2:
                break
            if rank.store.add(f"bar/{epoch}", 1) == rank.world_size:
                rank.store.set(f"bar/{epoch}/done", "1")
            rank.store.wait([f"bar/{epoch}/done"])
        dist.barrier()

    found = finding(run(fresh, body))
    assert (found.kind, found.culprits) == ("missing key", (2,))
    assert "nor added to 'bar/2' as others have" in found.lines[0]
