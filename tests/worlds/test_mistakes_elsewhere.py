"""A mistake that shows where another group, or a message, is waited for: whose it is, and at which line."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.ledger import CAPACITY
from tests.worlds.elsewhere import ELSEWHERE, ODD, Body
from tests.worlds.parting import guilty_line

DEADLINE_S = 60.0


@pytest.mark.parametrize(("body", "kind"), ELSEWHERE.items(), ids=lambda it: getattr(it, "__name__", str(it)))
def test_who_where_and_what(four: World, body: Body, kind: FindingKind) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (ODD,), outcome.summary()
    (finding,) = outcome.findings
    assert finding.kind is kind
    assert {site.line for site in finding.sides[0].sites if site is not None} == {guilty_line(body)}


def test_who_is_held_up_by_another_is_not_to_blame(four: World) -> None:
    """Of the pair nobody is in the majority; that a third has gone ahead, and waits for one of them, says nothing."""

    def body() -> None:
        pair, other = dist.new_group([0, 2]), dist.new_group([0, 1])
        me = dist.get_rank()
        if me in (0, 2):
            dist.broadcast(torch.ones(3 if me == ODD else 4), src=0, group=pair)
        if me in (0, 1):
            dist.barrier(group=other)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.SIZE, (), (0, 2))


def leaves_out_the_last_of_a_pair(late: int) -> None:
    pair, me = dist.new_group([0, 1]), dist.get_rank()
    for step in range(3):
        dist.all_reduce(torch.ones(2))
        if step == 2 and me == late:
            time.sleep(0.1)  # for the other to wait first
        if me < 2 and (me == 0 or step < 2):
            dist.broadcast(torch.ones(1), 0, group=pair)
    dist.barrier()


@pytest.mark.parametrize("late", [0, 1])
def test_it_is_called_the_same_whoever_came_first(four: World, late: int) -> None:
    (finding,) = four.run(leaves_out_the_last_of_a_pair, late, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.MISSING, (), (0, 1))


def test_the_next_call_on_the_other_group_makes_no_order_of_two(four: World) -> None:
    """A run comes to one of the two branches; that the one is written once more behind both is another call."""

    def body() -> None:
        one, other = dist.new_group([2, 3]), dist.new_group([2, 3])
        for step in range(2):
            if dist.get_rank() == ODD and step == 0:
                dist.all_reduce(torch.ones(4), group=one)
            elif dist.get_rank() > 1:
                dist.all_reduce(torch.ones(4), group=other)
            if dist.get_rank() > 1:
                dist.all_reduce(torch.ones(4), group=other)

    def on_one_line() -> None:
        one, other = dist.new_group([2, 3]), dist.new_group([2, 3])
        if dist.get_rank() > 1:
            dist.barrier(group=one) if dist.get_rank() == ODD else dist.barrier(group=other)
        if dist.get_rank() > 1:
            dist.barrier(group=other)

    for each in (body, on_one_line):
        (finding,) = four.run(each, deadline=DEADLINE_S).findings
        assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.GROUP, (), (2, 3))


def test_a_message_behind_a_call_that_both_make_is_a_deadlock(four: World) -> None:
    def body() -> None:
        me = dist.get_rank()
        if me == 0:
            dist.recv(torch.ones(1), src=1)
        dist.barrier()
        if me == 1:
            dist.send(torch.ones(1), dst=0)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.ranks) == (FindingKind.DEADLOCK, (0, 1))


def test_who_is_in_every_circle_is_to_blame(four: World) -> None:
    """Who has gone on waits for it in another group: of the two that wait for each other one is right."""

    def body() -> None:
        me, group = dist.get_rank(), dist.new_group([0, 1, ODD])
        if me == ODD:
            dist.barrier(group=group)  # too early
        if me == 0:
            dist.send(torch.ones(1), dst=ODD)
        if me == ODD:
            dist.recv(torch.ones(1), src=0)
        dist.barrier()
        if me in (0, 1):
            dist.barrier(group=group)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, (ODD,))
    assert finding.lines[0].startswith(f"deadlock: rank {ODD} waits in barrier #0 on ")


def test_in_a_group_of_one_a_call_more_or_less_is_nobodys_mistake(four: World) -> None:
    def body() -> None:
        alone, nested = [dist.new_group([rank]) for rank in range(4)], dist.new_group([0, 1])
        me = dist.get_rank()
        for step in range(3):
            if me != ODD or step != 1:
                dist.all_reduce(torch.ones(1), group=alone[me])
            if me < 2:
                dist.barrier(group=nested)
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()


@pytest.mark.parametrize(
    ("calls", "laps"),
    [
        (200, 2),
        pytest.param(CAPACITY + 1000, 2, marks=pytest.mark.nightly),
        pytest.param(200, 100, marks=pytest.mark.nightly),
    ],
)
def test_of_calls_that_the_ledger_has_forgotten_no_innocent_is_blamed(four: World, calls: int, laps: int) -> None:
    """Many more steps than the ring holds, and the call that was left out is long gone."""
    steps_between = -(-laps * CAPACITY // calls)

    def body() -> None:
        me = dist.get_rank()
        for step in range(calls):
            if me != ODD or step != 5:
                dist.all_reduce(torch.ones(1))
            for _ in range(steps_between):
                os.path.exists("nothing")  # looking for a file is a step too, and waits for nobody

    outcome = four.run(body, deadline=DEADLINE_S)
    assert min(rank.ledger.dropped for rank in outcome.ranks) >= (laps - 1.5) * CAPACITY
    assert outcome.culprits in ((), (ODD,), (0, 1, 2, 3)), outcome.summary()


def test_a_group_of_the_others_that_was_made_for_something_else_is_no_witness(four: World) -> None:
    def body() -> None:
        others, _, pair = (dist.new_group(ranks) for ranks in ([2, 3], [1, 2, 3], [0, 1]))
        me = dist.get_rank()
        if me == 1:
            dist.broadcast(torch.ones(7), src=1, group=pair)
        if me in (2, 3):
            dist.reduce(torch.ones(7), dst=2, group=others)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.MISSING, (), (0, 1))


def test_a_group_that_has_another_ones_others_is_no_witness(four: World) -> None:
    def body() -> None:
        alone, others, pair = (dist.new_group(ranks) for ranks in ([0, 3], [1, 2], [0, 3]))
        me = dist.get_rank()
        for _ in range(2):
            dist.all_reduce(torch.ones(1), group=pair if me in (0, 3) else others)
        for step in range(3):
            if me == 3 or (me == 0 and step != 1):
                dist.barrier(group=alone)

    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.MISSING, (), (0, 3))


def two_in_another_order() -> None:
    """Which of the two is right nobody knows; but each comes to both calls."""
    pair = dist.new_group([0, ODD])
    me = dist.get_rank()
    for step in range(2):
        if me == ODD and step == 0:
            dist.gather(torch.ones(3), None, dst=0, group=pair)
        if me in (0, ODD):
            dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2), group=pair)
        if me == 0:
            dist.gather(torch.ones(3), [torch.ones(3), torch.ones(3)], dst=0, group=pair)
        if me == ODD and step == 1:
            dist.gather(torch.ones(3), None, dst=0, group=pair)


def gathers_at_another_each_time() -> None:
    """No round goes past that line: it is the root that is wrong, though it is the next round's."""
    turn = 0
    while turn < 5:
        root = turn % 3
        if dist.get_rank() == ODD and turn == 4:
            root = (turn + 1) % 3
        taken = [torch.ones(2) for _ in range(4)] if dist.get_rank() == root else None
        dist.gather(torch.ones(2), taken, dst=root)
        turn += 1


def goes_past_one_of_them() -> None:
    turn = 0
    while turn < 5:
        root = turn % 3
        if dist.get_rank() != ODD or turn != 3:
            taken = [torch.ones(2) for _ in range(4)] if dist.get_rank() == root else None
            dist.gather(torch.ones(2), taken, dst=root)
        turn += 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [(gathers_at_another_each_time, FindingKind.ROOT), (goes_past_one_of_them, FindingKind.MISSING)],
)
def test_a_root_that_goes_round(four: World, body: Body, kind: FindingKind) -> None:
    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (kind, (ODD,))


def two_from_another_root() -> None:
    """Both calls are broadcasts: it is not the root that is wrong."""
    pair = dist.new_group([0, ODD])
    me = dist.get_rank()
    if me == ODD:
        dist.broadcast(torch.ones(2), src=ODD, group=pair)
    if me in (0, ODD):
        dist.broadcast(torch.ones(2), src=0, group=pair)
    if me == 0:
        dist.broadcast(torch.ones(2), src=ODD, group=pair)


def another_size_before_a_call_alike() -> None:
    """That the next call has that size, too, makes it no call that came too early."""
    pair = dist.new_group([0, ODD])
    me = dist.get_rank()
    if me in (0, ODD):
        if me == ODD:
            dist.all_reduce(torch.ones(3), group=pair)
        else:
            dist.all_reduce(torch.ones(7), group=pair)
    if me in (0, ODD):
        dist.all_reduce(torch.ones(3), group=pair)


def one_that_is_made_again_in_another_loop() -> None:
    """What is written there once more is no swapped call: the loop below has one of its own."""
    pair, three = dist.new_group([0, ODD]), dist.new_group([0, 1, ODD])
    me = dist.get_rank()
    for _ in range(2):
        if me == 0:
            dist.all_reduce(torch.ones(1), group=pair)
        if me != 3:
            dist.barrier(group=three)
    for _ in range(2):
        if me == 0:
            dist.all_reduce(torch.ones(1), group=pair)
        if me == ODD:
            dist.all_reduce(torch.ones(1), group=pair)


def one_in_a_circle_with_a_rank_that_was_let_go_on() -> None:
    """The root waits for the odd one; the one that got its part has gone past what the odd one waits in."""
    first, second = dist.new_group([0, 1]), dist.new_group([1, ODD])
    me = dist.get_rank()
    for step in range(3):
        if me in (0, 1):
            dist.barrier(group=first)
        if me == ODD and step == 1:
            dist.all_gather_into_tensor(torch.ones(8), torch.ones(4), group=second)
        dist.scatter(torch.ones(1), [torch.ones(1) for _ in range(4)] if me == 0 else None, src=0)
        if me in (0, 1):
            dist.barrier(group=first)


def one_before_a_message_by_a_branch() -> None:
    """An else and what stands below the next condition are no alternatives: all ranks come to both places."""
    pair = dist.new_group([0, ODD])
    me = dist.get_rank()
    if me == 0:
        torch.ones(1).sum()
    else:
        dist.broadcast(torch.ones(1 << 20), src=0, group=pair) if me == ODD else None
    if me == ODD:
        dist.send(torch.ones(1), dst=0)
    if me == 0:
        dist.recv(torch.ones(1), src=ODD)


def one_before_another_root() -> None:
    """Rank ODD comes to the line of rank 0 as well: these two calls were not meant for each other."""
    pair = dist.new_group([0, ODD])
    me = dist.get_rank()
    if me == ODD:
        dist.broadcast(torch.ones(1), src=ODD, group=pair)
    if me not in (0, ODD):
        return
    dist.broadcast(torch.ones(1), src=0, group=pair)


@pytest.mark.parametrize(
    ("body", "kind", "between"),
    [
        (two_in_another_order, FindingKind.CALL_ORDERING, (0, ODD)),
        (two_from_another_root, FindingKind.CALL_ORDERING, (0, ODD)),
        (another_size_before_a_call_alike, FindingKind.SIZE, (0, ODD)),
        (one_that_is_made_again_in_another_loop, FindingKind.MISSING, (0, ODD)),
        (one_in_a_circle_with_a_rank_that_was_let_go_on, FindingKind.MISSING, (1, ODD)),
        (one_before_a_message_by_a_branch, FindingKind.MISSING, (0, ODD)),
        (one_before_another_root, FindingKind.MISSING, (0, ODD)),
    ],
    ids=lambda it: getattr(it, "__name__", str(it)),
)
def test_between_whom_and_what(four: World, body: Body, kind: FindingKind, between: tuple[int, ...]) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits, finding.ranks) == (kind, (), between), outcome.summary()


def test_of_two_at_odds_it_is_told_where_their_calls_part(four: World) -> None:
    """One call too many of one, or too few of the other, met one alike; it shows at the next."""

    def body() -> None:
        pair = dist.new_group([0, ODD])
        if dist.get_rank() == ODD:
            dist.broadcast(torch.ones(1), src=0, group=pair)  # here
        if dist.get_rank() in (0, ODD):
            dist.broadcast(torch.ones(1), src=0, group=pair)
            dist.all_reduce(torch.ones(1), group=pair)

    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits, finding.ranks) == (FindingKind.MISSING, (), (0, ODD))
    first = finding.sides[0]
    assert first.did.endswith(", which rank 0 leaves out, if it is not one too many")
    assert [site.line for site in first.sites if site is not None] == [guilty_line(body)]
