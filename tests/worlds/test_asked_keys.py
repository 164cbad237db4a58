"""Keys that a rank asks for, and that are wrong as it asks for them: under a prefix twice, of a number of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run


def asks_in_a_prefix_of_a_prefix(rank: RankContext) -> None:
    run = PrefixStore("run", rank.store)
    run.set(f"result/{rank.index}", "done")
    dist.barrier()
    if rank.index == 2:
        PrefixStore("run", run).get("result/0")  # asks


def sets_in_a_prefix_of_a_prefix(rank: RankContext) -> None:
    run = PrefixStore("run", rank.store)
    if rank.index == 2:
        PrefixStore("run", run).set("weights", "there")  # asks
    else:
        run.get("weights")


def publish(store: Store, what: str) -> None:
    number = store.add("version", 1)
    store.set(f"what/{number}", what)


def counts_to_see_the_newest(rank: RankContext) -> None:
    if rank.index == 1:
        for number in range(3):
            publish(rank.store, str(number))
    dist.barrier()
    if rank.index == 2:
        newest = rank.store.add("version", 1)
        rank.store.get(f"what/{newest}")  # asks


@pytest.mark.parametrize("body", [asks_in_a_prefix_of_a_prefix, sets_in_a_prefix_of_a_prefix, counts_to_see_the_newest])
def test_who_asks_for_what_nobody_can_mean_is_to_blame(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING_KEY, (2,))
    assert marks(found)[0] == {"asks"}


def asks_a_server_that_answers_no_more(rank: RankContext) -> None:
    """Who asks counts its question, and waits for the answer of that number."""
    if rank.index == 0:
        for number in range(1, 3):
            rank.store.get(f"question/{number}")
            rank.store.set(f"answer/{number}", "yes")
        return
    number = rank.store.add("asked", 1)
    rank.store.set(f"question/{number}", "whether")
    rank.store.get(f"answer/{number}")


def draws_a_ticket(rank: RankContext) -> None:
    """Who has the turn gives it to the next; one does not."""
    ticket = rank.store.add("ticket", 1)
    if ticket > 1:
        rank.store.get(f"turn/{ticket}")
    if ticket < 3:
        rank.store.set(f"turn/{ticket + 1}", "yours")


def asks_its_partner(rank: RankContext) -> None:
    """No rule of ranks is that of all others: who waits is right, and its partner has set none."""
    partner = rank.index ^ 1
    if rank.index != 2:
        rank.store.set(f"half/{rank.index}", "there")
    dist.barrier()
    rank.store.get(f"half/{partner}")


@pytest.mark.parametrize("body", [asks_a_server_that_answers_no_more, draws_a_ticket, asks_its_partner])
def test_who_waits_for_what_another_was_to_set_is_not(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert found.kind is FindingKind.MISSING_KEY
    waits = [rank for side in found.sides for rank in side.ranks if "waits" in side.did]
    assert not set(waits) & set(found.culprits)


def hands_it_on(rank: RankContext) -> None:
    """From rank to rank, in an order of their own; rank 3 keeps it."""
    turn = (2, 0, 3, 1).index(rank.index)
    if turn:
        rank.store.get(f"turn/{turn}")
    if rank.index != 3:
        rank.store.set(f"turn/{turn + 1}", "yours")


def test_who_keeps_what_all_others_hand_on_is_to_blame(fresh: World) -> None:
    (found,) = run(fresh, hands_it_on, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING_KEY, (3,))
