"""Bodies for four ranks of which one makes a mistake that shows elsewhere: others wait for it in other groups, or for
messages, or have been let go on. The guilty line ends in `# here`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.diagnosis import FindingKind

__all__ = ["ELSEWHERE", "ODD", "Body"]

Body = Callable[[], Any]
ODD = 2


def me() -> int:
    return dist.get_rank()


def ones(count: int = 4) -> torch.Tensor:
    return torch.ones(count)


def one_more_on_another_group() -> None:
    most = dist.new_group([1, 2, 3])
    if me() == ODD:
        dist.barrier(group=most)  # here
    dist.all_reduce(ones())


def one_more_on_another_group_in_the_second_round() -> None:
    everybody, again = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    for step in range(4):
        if me() == ODD and step == 1:
            dist.barrier(group=again)  # here
        dist.all_reduce(ones(), group=everybody)


def one_more_before_one_that_is_the_same() -> None:
    """The others' only one meets the first of its two; it waits in the second, and did not mean to make the first."""
    most, others = dist.new_group([0, 2, 3]), dist.new_group([0, 1, 2])
    if me() == ODD:
        dist.broadcast_object_list([1], src=ODD, group=most)  # here
    if me() != 1:
        dist.broadcast_object_list([1], src=ODD, group=most)
    dist.broadcast_object_list([1], src=ODD, group=others)


def one_more_in_a_round_that_others_have_ended() -> None:
    """Those that wait for it have been past that call already, in the round that it is in."""
    mine, beside = dist.new_group([0, 2]), dist.new_group([1, 3])
    most = dist.new_group([0, 2, 3])
    for step in range(4):
        dist.scatter(ones(), [ones()] * 4 if me() == ODD else None, src=ODD)
        if me() == ODD and step == 1:
            dist.all_reduce(ones(), group=most)  # here
        dist.all_reduce(ones(2), group=mine if me() in (0, 2) else beside)


def one_more_where_somebody_has_returned() -> None:
    others = dist.new_group([1, 2, 3])
    if me() == ODD:
        dist.barrier()  # here
    if me() in (1, 2, 3):
        dist.gather(ones(), [ones() for _ in range(3)] if me() == ODD else None, dst=ODD, group=others)


def one_more_among_messages() -> None:
    for step in range(4):
        dist.reduce(ones(), dst=1)
        if me() == ODD and step == 2:
            dist.scatter(ones(), None, src=1)  # here
        if me() == 0:
            dist.send(ones(1 << 20), dst=ODD)
        if me() == ODD:
            dist.recv(ones(1 << 20), src=0)


def swapped_between_two_groups() -> None:
    """Whoever sends to the root of a gather is let go on, and is a witness all the same."""
    everybody = dist.new_group([0, 1, 2, 3])
    if me() == ODD:
        dist.all_reduce(ones(), group=everybody)  # here
    dist.gather(ones(), [ones() for _ in range(4)] if me() == 0 else None, dst=0)
    if me() != ODD:
        dist.all_reduce(ones(), group=everybody)


def swapped_with_one_that_begins_alike() -> None:
    """The first exchange of the objects meets the call that the others make later, and fits it."""
    mine, all_ = torch.ones(1, dtype=torch.int64), [torch.ones(1, dtype=torch.int64) for _ in range(4)]
    if me() == ODD:
        dist.all_gather(all_, mine)  # here
    dist.all_gather_object([None] * 4, me())
    if me() != ODD:
        dist.all_gather(all_, mine)


def on_all_instead_of_alone() -> None:
    """Its group is its own, so that nobody waits for it there; for its messages one does."""
    most, alone = dist.new_group([0, 1, 3]), dist.new_group([ODD])
    mine = alone if me() == ODD else most
    for step in range(3):
        dist.all_reduce(ones(), group=dist.group.WORLD if me() == ODD and step == 1 else mine)  # here
        if me() == ODD:
            dist.send(ones(), dst=1)
        if me() == 1:
            dist.recv(ones(), src=ODD)


def sent_to_another_than_the_one_that_waits() -> None:
    """Neither of the two would come to more: were the address right, both had left something out."""
    for child in {0: (1, 3), 3: (ODD,)}.get(me(), ()):
        dist.recv(ones(1), child)
    if me():
        dist.send(ones(1), {1: 0, ODD: 1, 3: 0}[me()])  # here
    dist.barrier()


def not_sent_to_one_that_receives_from_each() -> None:
    """What others have sent meanwhile is no sign of a wrong address: the one that waits comes to that in its loop."""
    for source in (1, 2, 3) if me() == 0 else ():
        dist.recv(ones(1), source)
    if me() in (1, 3):
        dist.send(ones(1), 0)  # here
    dist.barrier()


def past_what_others_make_before_they_clean_up() -> None:
    """Who is told so on the way goes on to the next call, too."""

    def epoch(number: int) -> None:
        try:
            if me() != ODD or number != 1:
                dist.all_reduce(ones())  # here
        finally:
            dist.broadcast(ones(1), 0)

    for number in range(3):
        epoch(number)


def past_what_one_sends_and_another_expects() -> None:
    """One in the middle that leaves too early explains both."""
    for _ in range(3 if me() == ODD else 4):
        if me() in (ODD, 3):
            dist.recv(ones(), me() - 1)  # here
        if me() in (1, ODD):
            dist.send(ones(), me() + 1)
    dist.barrier()


def sent_to_another_in_a_branch() -> None:
    """All but rank 0 wait in a circle with it, as they would if these were two messages in the wrong order."""
    for step in range(3):
        dist.all_reduce(ones())
        if me() == ODD and step == 1:
            dist.send(ones(1 << 20), dst=0)  # here
        elif me() == ODD:
            dist.send(ones(1 << 20), dst=1)
        if me() == 1:
            dist.recv(ones(1 << 20), src=ODD)


def swapped_with_a_call_on_pairs() -> None:
    """In the pair it is one against one; the other pair has made that call, and comes to the odd one's only now."""
    pairs = dist.new_group([0, ODD]), dist.new_group([1, 3])
    mine = pairs[me() % 2]
    if me() == ODD:
        dist.barrier()  # here
    dist.all_reduce(ones(), group=mine)
    if me() != ODD:
        dist.barrier()


def past_a_barrier_to_a_message() -> None:
    if me() != ODD:
        dist.barrier()  # here
    if me() == 0:
        dist.send(ones(), dst=ODD)
    if me() == ODD:
        dist.recv(ones(), src=0)


def past_a_barrier_to_a_message_in_the_third_round() -> None:
    for step in range(5):
        if me() == 0:
            dist.send(ones(), dst=ODD)
        if me() == ODD:
            dist.recv(ones(), src=0)
        if me() != ODD or step != 2:
            dist.barrier()  # here


def past_a_broadcast_that_others_have_passed() -> None:
    dist.barrier()
    for root in (0, 1):
        if me() != ODD or root == 0:
            dist.broadcast_object_list([me()], src=root)  # here


def gone_while_all_wait_for_it_each_elsewhere() -> None:
    if me() == ODD:
        return
    if me() == 0:
        dist.recv(ones(), src=ODD)
    if me() == 1:
        dist.recv(ones(), src=ODD)
    dist.all_reduce(ones())  # here


def another_size_than_the_root_scatters() -> None:
    size = 7 if me() == ODD else 1
    dist.scatter(ones(size), [ones(1) for _ in range(4)] if me() == 1 else None, src=1)  # here


def another_group_than_ever_before() -> None:
    pair, again = dist.new_group([1, 2]), dist.new_group([1, 2])
    for step in range(5):
        if me() in (1, 2):
            dist.all_reduce(ones(), group=again if me() == ODD and step == 3 else pair)  # here
            dist.barrier(group=again)
    dist.barrier()


def another_group_than_ever_before_meets_another_call() -> None:
    pair = dist.new_group([1, 2])
    for step in range(5):
        if me() in (1, 2):
            dist.barrier(group=None if me() == ODD and step == 3 else pair)  # here
        dist.all_gather([ones() for _ in range(4)], ones())


def another_group_taken_without_waiting() -> None:
    everybody = dist.new_group([0, 1, 2, 3])
    mine = ones()
    if me() == ODD:
        work = dist.all_reduce(mine, async_op=True)  # here
    else:
        work = dist.all_reduce(mine, group=everybody, async_op=True)
    dist.barrier()
    assert work is not None
    work.wait()


def another_group_taken_before_another_call() -> None:
    """Nobody waits in it yet: it shows where the next call meets what the others made there."""
    three = dist.new_group([0, 1, ODD])
    for step in range(2):
        group = three if me() == ODD and step == 1 else None
        work = dist.all_reduce(ones(), group=group, async_op=True)  # here
        dist.broadcast(ones(), src=3)
        assert work is not None
        work.wait()


def another_group_than_one_that_was_let_go_on() -> None:
    pair = dist.new_group([0, 2])
    if me() in (0, 2):
        dist.broadcast(ones(), src=0, group=None if me() == ODD else pair)  # here


def past_a_broadcast_to_two_alike() -> None:
    """That the second of them is written as the first is no sign of another order: both are to come after it."""
    three = dist.new_group([0, 1, ODD])
    if me() != ODD:
        dist.broadcast(ones(), src=0)  # here
    if me() != 3:
        dist.all_reduce(ones(), group=three)
    if me() != 3:
        dist.all_reduce(ones(), group=three)


def past_a_broadcast_to_a_pair() -> None:
    """In the pair it is one against one; of the four three have made the broadcast."""
    pair = dist.new_group([0, 2])
    if me() != ODD:
        dist.broadcast(ones(), src=2)  # here
    if me() in (0, 2):
        dist.all_reduce(ones(), group=pair)


def one_more_before_a_pair() -> None:
    pair = dist.new_group([0, 2])
    if me() == ODD:
        dist.barrier()  # here
    if me() in (0, 2):
        dist.all_reduce(ones(), group=pair)
    if me() in (1, 3):
        dist.recv(ones(), src=0)
    if me() == 0:
        dist.send(ones(), dst=1)
        dist.send(ones(), dst=3)


def one_more_that_one_other_meets() -> None:
    if me() == ODD:
        dist.all_gather([ones() for _ in range(4)], ones())  # here
    if me() == 1:
        dist.send(ones(1 << 20), dst=ODD)
    if me() == ODD:
        dist.recv(ones(1 << 20), src=1)
    if me() == 1:
        dist.send(ones(), dst=3)
    if me() == 3:
        dist.recv(ones(), src=1)
    dist.all_reduce(ones())


def one_more_alike_before_a_message() -> None:
    """Two meet it in the call that is to come after the message; the fourth waits for the message, and would, too."""
    if me() == ODD:
        dist.all_reduce(ones())  # here
    if me() == ODD:
        dist.send(ones(), dst=3)
    if me() == 3:
        dist.recv(ones(), src=ODD)
    for _ in range(1):
        dist.all_reduce(ones())


def one_more_of_another_size_before_a_message() -> None:
    """Two meet it in the call behind the message; the fourth, who waits for that, is the witness."""
    if me() == ODD:
        dist.all_reduce(ones(1))  # here
    if me() == 1:
        dist.send(ones(1 << 20), dst=ODD)
    if me() == ODD:
        dist.recv(ones(1 << 20), src=1)
    dist.all_reduce(ones())


def one_more_of_another_type_in_the_second_round() -> None:
    for step in range(3):
        dist.all_reduce(ones())
        if me() == ODD and step == 1:
            dist.all_reduce(ones().double())  # here
        if me() == ODD:
            dist.send(ones(), dst=0)
        if me() == 0:
            dist.recv(ones(), src=ODD)
        dist.all_reduce(ones())


def one_more_with_another_sum_before_a_message() -> None:
    if me() == ODD:
        dist.all_reduce(ones(), op=dist.ReduceOp.MAX)  # here
    if me() == ODD:
        dist.send(ones(), dst=3)
    if me() == 3:
        dist.recv(ones(), src=ODD)
    dist.all_reduce(ones())


def one_more_from_another_root_meets_one() -> None:
    """In a group of three it is one against one, and the third waits for one of them."""
    three = dist.new_group([0, 1, ODD])
    if me() == ODD:
        dist.broadcast(ones(), src=1, group=three)  # here
    if me() == ODD:
        dist.send(ones(1 << 20), dst=1)
    if me() == 1:
        dist.recv(ones(1 << 20), src=ODD)
    if me() != 3:
        dist.broadcast(ones(), src=0, group=three)


def one_more_that_others_are_past() -> None:
    """Whom it sends to next waits for a message from another, who would come to that call as little as the rest."""
    three = dist.new_group([0, ODD, 3])
    for step in range(4):
        if me() == 0:
            dist.send(ones(1 << 20), dst=ODD)
        if me() == ODD:
            dist.recv(ones(1 << 20), src=0)
        if me() == ODD and step == 2:
            dist.all_gather_object([None] * 3, step, group=three)  # here
        if me() == 1:
            dist.send(ones(1 << 20), dst=0)
        if me() == 0:
            dist.recv(ones(1 << 20), src=1)
    dist.barrier()


def one_more_that_shows_in_the_last_round() -> None:
    """Whoever sends to the root is let go on, and is a call ahead of the others from then on."""
    again = dist.new_group([0, 1, 2, 3])
    for step in range(6):
        if me() == ODD and step == 2:
            dist.gather(ones(), None, dst=3)  # here
        if me() == 0:
            dist.send(ones(1 << 20), dst=ODD)
        if me() == ODD:
            dist.recv(ones(1 << 20), src=0)
        dist.gather(ones(), [ones() for _ in range(4)] if me() == 3 else None, dst=3)
        if me() == ODD:
            dist.send(ones(1 << 20), dst=0)
        if me() == 0:
            dist.recv(ones(1 << 20), src=ODD)
    dist.all_reduce(ones(), group=again)


def one_more_that_others_meet_from_further_down() -> None:
    """The other pair has made its call, and meets the odd one's in the next: it is no witness that this was to be."""
    pairs = dist.new_group([0, ODD]), dist.new_group([1, 3])
    mine = pairs[me() % 2]
    if me() == ODD:
        dist.all_reduce(ones())  # here
    dist.all_reduce(ones(), group=mine)
    dist.all_reduce(ones())
    dist.barrier(group=mine)


def one_more_of_objects_alike() -> None:
    """Two exchanges a call: the odd one's meet the others' first call, and its own first call nobody meets."""
    first, second = dist.new_group([0, ODD, 3]), dist.new_group([0, ODD, 3])
    if me() == ODD:
        dist.gather_object(me(), None, dst=0, group=first)  # here
    if me() != 1:
        dist.gather_object(me(), [None] * 3 if me() == 0 else None, dst=0, group=first)
        dist.all_reduce(ones(), group=second)


def another_size_behind_a_message_between_others() -> None:
    if me() == 0:
        dist.send(ones(1 << 20), dst=1)
    if me() == 1:
        dist.recv(ones(1 << 20), src=0)
    if me() == ODD:
        dist.all_reduce(ones(1))  # here
    else:
        dist.all_reduce(ones())


def another_size_taken_before_a_message() -> None:
    mine = ones(1 if me() == ODD else 4)
    work = dist.all_reduce(mine, async_op=True)  # here
    if me() == 0:
        dist.send(ones(1 << 20), dst=ODD)
    if me() == ODD:
        dist.recv(ones(1 << 20), src=0)
    assert work is not None
    work.wait()


def sums_swapped() -> None:
    if me() == ODD:
        dist.all_reduce(ones(), op=dist.ReduceOp.MAX)  # here
    dist.all_reduce(ones())
    if me() != ODD:
        dist.all_reduce(ones(), op=dist.ReduceOp.MAX)


def another_root_of_objects() -> None:
    for _ in range(2):
        if me() == ODD:
            dist.gather_object(me(), None, dst=1)  # here
        else:
            dist.gather_object(me(), [None] * 4 if me() == 0 else None, dst=0)


def objects_for_tensors() -> None:
    if me() == ODD:
        dist.all_gather_object([None] * 4, me())  # here
    else:
        dist.all_gather([ones() for _ in range(4)], ones())


ELSEWHERE: dict[Body, FindingKind] = {
    one_more_on_another_group: FindingKind.EXTRA,
    one_more_before_one_that_is_the_same: FindingKind.EXTRA,
    one_more_in_a_round_that_others_have_ended: FindingKind.EXTRA,
    one_more_on_another_group_in_the_second_round: FindingKind.EXTRA,
    one_more_where_somebody_has_returned: FindingKind.EXTRA,
    one_more_among_messages: FindingKind.EXTRA,
    swapped_between_two_groups: FindingKind.CALL_ORDERING,
    swapped_with_one_that_begins_alike: FindingKind.CALL_ORDERING,
    on_all_instead_of_alone: FindingKind.GROUP,
    sent_to_another_in_a_branch: FindingKind.UNMATCHED,
    past_what_one_sends_and_another_expects: FindingKind.UNMATCHED,
    past_what_others_make_before_they_clean_up: FindingKind.MISSING,
    sent_to_another_than_the_one_that_waits: FindingKind.UNMATCHED,
    not_sent_to_one_that_receives_from_each: FindingKind.UNMATCHED,
    swapped_with_a_call_on_pairs: FindingKind.CALL_ORDERING,
    past_a_barrier_to_a_message: FindingKind.MISSING,
    past_a_barrier_to_a_message_in_the_third_round: FindingKind.MISSING,
    past_a_broadcast_that_others_have_passed: FindingKind.MISSING,
    gone_while_all_wait_for_it_each_elsewhere: FindingKind.MISSING,
    another_size_than_the_root_scatters: FindingKind.SIZE,
    another_group_than_ever_before: FindingKind.GROUP,
    another_group_than_ever_before_meets_another_call: FindingKind.GROUP,
    another_group_taken_without_waiting: FindingKind.GROUP,
    another_group_taken_before_another_call: FindingKind.GROUP,
    another_group_than_one_that_was_let_go_on: FindingKind.GROUP,
    past_a_broadcast_to_two_alike: FindingKind.MISSING,
    past_a_broadcast_to_a_pair: FindingKind.MISSING,
    one_more_before_a_pair: FindingKind.EXTRA,
    one_more_that_one_other_meets: FindingKind.EXTRA,
    one_more_alike_before_a_message: FindingKind.EXTRA,
    one_more_of_another_size_before_a_message: FindingKind.EXTRA,
    one_more_of_another_type_in_the_second_round: FindingKind.EXTRA,
    one_more_with_another_sum_before_a_message: FindingKind.EXTRA,
    one_more_from_another_root_meets_one: FindingKind.EXTRA,
    one_more_that_others_are_past: FindingKind.EXTRA,
    one_more_that_shows_in_the_last_round: FindingKind.EXTRA,
    one_more_that_others_meet_from_further_down: FindingKind.EXTRA,
    one_more_of_objects_alike: FindingKind.EXTRA,
    another_size_behind_a_message_between_others: FindingKind.SIZE,
    another_size_taken_before_a_message: FindingKind.SIZE,
    sums_swapped: FindingKind.CALL_ORDERING,
    another_root_of_objects: FindingKind.ROOT,
    objects_for_tensors: FindingKind.CALL_ORDERING,
}
