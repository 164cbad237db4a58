"""Keys that a rank asks for, and that are wrong as it asks for them: under a prefix twice, of a number of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
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


def draws_from_one(rank: RankContext) -> None:
    """The first number that is drawn is 1."""
    number = rank.store.add("drawn", 1)
    rank.store.set(f"address/{number}", "here")
    if rank.index == 2:
        for each in range(4):
            rank.store.get(f"address/{each}")  # asks


def draws_in_the_order_of_the_ranks(rank: RankContext) -> None:
    """By chance each number is one more than the rank: it is no rank's all the same."""
    for turn in range(rank.world_size):
        dist.barrier()
        if turn == rank.index:
            number = rank.store.add("drawn", 1)
            rank.store.set(f"address/{number}", "here")
    if rank.index == 2:
        for each in range(4):
            rank.store.get(f"address/{each}")  # asks


def sets_its_neighbours_after_it_has_counted(rank: RankContext) -> None:
    """All count themselves, and nobody means the number that it draws: each sets that of its own rank."""
    rank.store.add("arrived", 1)
    rank.store.set(f"address/{1 if rank.index == 2 else rank.index}", "here")  # asks
    for other in range(4):
        rank.store.get(f"address/{other}")


def asks_for_one_epoch_more(rank: RankContext) -> None:
    """No collective parts the epochs: that all others are at the end says nothing of who miscounted."""
    if rank.index == 2:
        for epoch in range(4):
            for trainer in (0, 1, 3):
                rank.store.get(f"epoch/{epoch}/{trainer}")  # asks
    else:
        for epoch in range(3):
            rank.store.set(f"epoch/{epoch}/{rank.index}", "done")
    dist.barrier()


def asks_for_another_than_all_others(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("model/config", "there")
    rank.store.get("model/settings" if rank.index == 2 else "model/config")  # asks


def asks_its_neighbour_on_the_other_side(rank: RankContext) -> None:
    left, right = (rank.index - 1) % 4, (rank.index + 1) % 4
    rank.store.set(f"edge/{rank.index}/{right}", "there")
    rank.store.get(f"edge/{right if rank.index == 2 else left}/{rank.index}")  # asks


def goes_through_rounds(rank: RankContext, ahead: int = 0, left_out: tuple[int, int] | None = None) -> None:
    """Rank 0 begins each round once all others have done the one before."""
    for turn in range(3):
        if rank.index == 0:
            rank.store.set(f"round/{turn}/go", "yes")
            for other in range(1, 4):
                rank.store.get(f"round/{turn}/done/{other}")
        else:
            rank.store.get(f"round/{turn + ahead}/go")  # asks
            if (turn, rank.index) != left_out:
                rank.store.set(f"round/{turn}/done/{rank.index}", "yes")


def asks_a_round_ahead(rank: RankContext) -> None:
    goes_through_rounds(rank, ahead=int(rank.index == 2))


def leaves_out_what_a_round_waits_for(rank: RankContext) -> None:
    goes_through_rounds(rank, left_out=(1, 2))


def asks_with_its_parts_turned_round(rank: RankContext) -> None:
    rank.store.set(f"beat/{rank.index}/{rank.index + 4}", "yes")
    dist.barrier()
    if rank.index == 2:
        rank.store.get("beat/7/3")  # asks


def asks_in_other_letters(rank: RankContext) -> None:
    rank.store.set(f"done/{rank.index}", "yes")
    dist.barrier()
    if rank.index == 2:
        rank.store.get("done-0")  # asks


def sets_another_than_its_own(rank: RankContext) -> None:
    rank.store.set(f"{'host' if rank.index == 2 else 'address'}/{rank.index}", "here")  # asks
    for other in range(4):
        rank.store.get(f"address/{other}")


def hands_on_the_number_it_was_given(rank: RankContext) -> None:
    if rank.index:
        rank.store.get(f"turn/{rank.index}")
    rank.store.set(f"turn/{rank.index + (rank.index != 2)}", "yours")  # asks


def hands_a_baton_round(rank: RankContext, wrong: int) -> None:
    for turn in range(3):
        if turn or rank.index:
            rank.store.get(f"baton/{turn}/{rank.index}")
        behind = (rank.index + 1) % 4
        at = turn + (behind == 0) - ((rank.index, turn) == (2, wrong))
        rank.store.set(f"baton/{at}/{behind}", "yours")  # asks
    dist.barrier()


def hands_on_the_baton_before(rank: RankContext) -> None:
    hands_a_baton_round(rank, wrong=2)


def hands_on_the_baton_before_early(rank: RankContext) -> None:
    hands_a_baton_round(rank, wrong=1)


def sets_what_another_has_set(rank: RankContext) -> None:
    for turn in range(12):
        if turn % 4 == rank.index:
            if turn:
                rank.store.get(f"ticket{turn}")
            rank.store.set(f"ticket{turn + (turn != 6)}", "yours")  # asks
    dist.barrier()


def publishes_what_there_is(rank: RankContext) -> None:
    """Each round but the second, in which it has found nothing."""
    for turn in range(3):
        dist.all_reduce(torch.ones(1))  # asks
        if rank.index != 2:
            rank.store.get(f"found/{turn}")
        elif turn != 1:
            rank.store.set(f"found/{turn}", "much")  # asks


def asks_by_a_longer_name(rank: RankContext) -> None:
    """All ask for the same list of them, and a line sets any such name."""
    if rank.index == 0:
        for name in ("lr", "clip", "seed"):
            rank.store.set(f"settings/{name}", "1")
    names = ["lr", "grad_clip" if rank.index == 2 else "clip", "seed"]
    for name in names:
        rank.store.get(f"settings/{name}")  # asks
    dist.barrier()


@pytest.mark.parametrize(
    "body",
    [
        asks_by_a_longer_name,
        *(hands_on_the_baton_before, hands_on_the_baton_before_early, sets_what_another_has_set),
        publishes_what_there_is,
        *(asks_in_a_prefix_of_a_prefix, sets_in_a_prefix_of_a_prefix, counts_to_see_the_newest, draws_from_one),
        *(draws_in_the_order_of_the_ranks, asks_for_one_epoch_more, sets_its_neighbours_after_it_has_counted),
        *(asks_for_another_than_all_others, asks_its_neighbour_on_the_other_side, asks_a_round_ahead),
        *(leaves_out_what_a_round_waits_for, asks_with_its_parts_turned_round, asks_in_other_letters),
        *(sets_another_than_its_own, hands_on_the_number_it_was_given),
    ],
)
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


def forgets_what_it_was_asked_by_mail(rank: RankContext) -> None:
    """Whoever waits for the answer has asked."""
    if rank.index == 0:
        rank.store.set("mail/0/1", "when?")
        rank.store.get("mail/1/0")


def has_counted_itself_as_it_happens(rank: RankContext) -> None:
    """They come to be counted in the order of their ranks; rank 0 has done nothing of it."""
    if rank.index:
        rank.store.set(f"out/{rank.index}", "there")
        while rank.store.add("arrived", 0) < rank.index - 1:
            pass
        rank.store.add("arrived", 1)
    if rank.index == 3:
        for other in range(4):
            rank.store.get(f"out/{other}")


def numbers_that_are_the_same(rank: RankContext) -> None:
    """Of round 0 the key of rank 0 is missing: that has no part twice."""
    rank.store.set(f"ready/{rank.index}", "yes")
    if rank.index:
        rank.store.set(f"ready/0/{rank.index}", "yes")
    dist.barrier()
    if rank.index == 2:
        rank.store.get("ready/0/0")


def needs_what_the_others_do_not(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("vocabulary", "there")
        if rank.world_size > 4:
            rank.store.set("merges", "there")
    else:
        rank.store.get("merges" if rank.index == 3 else "vocabulary")


def one_of_two_producers_forgets_its_last(rank: RankContext) -> None:
    """The other one has put a word at the end that nobody takes."""
    if rank.index == 0:
        for number in (2, 8):
            rank.store.set(f"task/{number}", "there")
    elif rank.index > 1:
        rank.store.get(f"task/{rank.index}")


def gives_its_ticket_to_nobody(rank: RankContext) -> None:
    if rank.index == 0:
        rank.store.set("serving/1", "yes")
        rank.store.get(f"serving/{rank.store.add('ticket', 1)}")
    dist.barrier()
    if rank.index == 1:
        rank.store.get(f"serving/{rank.store.add('ticket', 1)}")


def waits_for_the_next_phase(rank: RankContext) -> None:
    rank.store.set(f"phase_a/{rank.index}", "yes")
    if rank.index == 0:
        rank.store.get("phase_b/1")


def waits_for_what_has_no_number(rank: RankContext) -> None:
    """Keys of one beginning, one of which has a number less."""
    if rank.index == 1:
        for number in range(3):
            rank.store.set(f"step{number}", "yes")
    elif rank.index == 0:
        rank.store.get("step0")
        rank.store.get("step")


def needs_its_own_part_by_a_longer_name(rank: RankContext) -> None:
    """It is there for the last one alone, for all that is known."""
    if rank.index == 0:
        for name in ("mean", "train_mean")[: rank.world_size - 3]:
            rank.store.set(f"statistics/{name}", "1")
    rank.store.get(f"statistics/{'train_' if rank.index == 3 else ''}mean")
    dist.barrier()


@pytest.mark.parametrize(
    "body",
    [
        needs_its_own_part_by_a_longer_name,
        *(asks_a_server_that_answers_no_more, draws_a_ticket, asks_its_partner, forgets_what_it_was_asked_by_mail),
        *(has_counted_itself_as_it_happens, numbers_that_are_the_same, needs_what_the_others_do_not),
        *(one_of_two_producers_forgets_its_last, gives_its_ticket_to_nobody, waits_for_the_next_phase),
        waits_for_what_has_no_number,
    ],
)
def test_who_waits_for_what_another_was_to_set_is_not(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert found.kind is FindingKind.MISSING_KEY
    waits = [rank for side in found.sides for rank in side.ranks if "waits" in side.did]
    assert not set(waits) & set(found.culprits)


NAMES = ["control", "north", "east", "south"]


def signs_in_with_a_capital(rank: RankContext) -> None:
    if rank.index:
        name = NAMES[rank.index].title() if rank.index == 3 else NAMES[rank.index]
        rank.store.set(f"turbine/{name}", "there")  # sets
    else:
        for name in NAMES[1:]:
            rank.store.wait([f"turbine/{name}"])


def asks_for_one_with_a_capital(rank: RankContext) -> None:
    if rank.index:
        rank.store.set(f"turbine/{NAMES[rank.index]}", "there")
    else:
        for name in ("north", "east", "South"):
            rank.store.wait([f"turbine/{name}"])


def all_sign_in_with_capitals(rank: RankContext) -> None:
    if rank.index:
        rank.store.set(f"turbine/{NAMES[rank.index].title()}", "there")
    else:
        for name in NAMES[1:]:
            rank.store.wait([f"turbine/{name}"])


def test_who_alone_sets_a_key_with_a_capital_is_to_blame(fresh: World) -> None:
    (found,) = run(fresh, signs_in_with_a_capital, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING_KEY, (3,))
    assert marks(found)[0] == {"sets"}


@pytest.mark.parametrize("body", [asks_for_one_with_a_capital, all_sign_in_with_capitals])
def test_who_sets_a_key_as_others_do_is_not(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert found.kind is FindingKind.MISSING_KEY
    assert set(found.culprits) <= {0}


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
