"""The right call on the wrong group, and groups taken in another order: who, and at which line."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Outcome

DEADLINE_S = 60.0
SOON_S = 5.0  # for what nobody can be certain of


def only(outcome: Outcome) -> Finding:
    (finding,) = outcome.findings
    return finding


def lines(finding: Finding) -> list[set[int]]:
    return [{site.line for site in side.sites if site is not None} for side in finding.sides]


def pairs() -> tuple[list[dist.ProcessGroup], list[dist.ProcessGroup]]:
    """The rows and the columns of a square of four ranks."""
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    return rows, columns


def test_its_row_where_the_others_take_their_columns(four: World) -> None:
    """One waits in the row, and its partner of the column for it: two against nobody, but one call of the program."""

    def body() -> None:
        rows, columns = pairs()
        me = dist.get_rank()
        across = rows[1] if me == 3 else columns[me % 2]
        dist.all_reduce(torch.ones(2), group=rows[me // 2])
        dist.all_reduce(torch.ones(2), group=across)

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (3,)
    finding = only(outcome)
    assert finding.kind is FindingKind.GROUP
    assert lines(finding)[0] == {body.__code__.co_firstlineno + 5}


def test_in_the_last_of_many_rounds(four: World) -> None:
    def body() -> None:
        rows, columns = pairs()
        me = dist.get_rank()
        for turn in range(30):
            dist.all_reduce(torch.ones(2), group=rows[me // 2])
            across = rows[0] if me == 1 and turn == 28 else columns[me % 2]
            dist.all_reduce(torch.ones(2), group=across)

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (1,)
    finding = only(outcome)
    assert finding.kind is FindingKind.GROUP
    assert lines(finding)[0] == {body.__code__.co_firstlineno + 6}


def test_everybody_where_the_others_take_a_part(four: World) -> None:
    """It meets the one that is not in the group, one against one: the two that wait for it elsewhere decide."""

    def body() -> None:
        part = dist.new_group([0, 1, 2])
        if dist.get_rank() == 2:
            dist.all_reduce(torch.ones(2))
        elif dist.get_rank() < 2:
            dist.all_reduce(torch.ones(2), group=part)
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (2,)
    finding = only(outcome)
    assert finding.kind is FindingKind.GROUP
    assert [side.ranks for side in finding.sides] == [(2,), (0, 1)]


def test_who_goes_past_the_call_of_its_group_left_it_out(four: World) -> None:
    def body() -> None:
        part = dist.new_group([0, 1, 2])
        if dist.get_rank() in (0, 2):
            dist.all_reduce(torch.ones(4), group=part)
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (1,)
    finding = only(outcome)
    assert finding.kind is FindingKind.MISSING
    assert lines(finding)[0] == {body.__code__.co_firstlineno + 3}


def test_two_groups_in_two_orders(two: World) -> None:
    def body() -> None:
        order = [dist.new_group([0, 1]), dist.new_group([0, 1])]
        if dist.get_rank() == 1:
            order.reverse()
        for group in order:
            dist.all_reduce(torch.ones(1), group=group)

    outcome = two.run(body, deadline=DEADLINE_S)
    finding = only(outcome)
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ())
    assert finding.ranks == (0, 1)


def test_two_groups_in_two_orders_in_two_branches(two: World) -> None:
    def body() -> None:
        losses, metrics = dist.new_group([0, 1]), dist.new_group([0, 1])
        if dist.get_rank() == 0:
            dist.barrier(group=losses)
            dist.barrier(group=metrics)
        else:
            dist.barrier(group=metrics)
            dist.barrier(group=losses)

    finding = only(two.run(body, deadline=DEADLINE_S))
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ())
    assert lines(finding) == [{body.__code__.co_firstlineno + line} for line in (3, 6)]


def test_groups_turned_round_after_many_rounds(four: World) -> None:
    def body() -> None:
        groups = [dist.new_group(), dist.new_group()]
        for turn in range(20):
            turned = turn == 19 and dist.get_rank() == 2
            for group in reversed(groups) if turned else groups:
                dist.all_reduce(torch.ones(1), group=group)

    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (2,)
    assert only(outcome).kind is FindingKind.DEADLOCK


def test_a_call_that_a_thread_leaves_out(four: World) -> None:
    """Its own thread is done, and waits in the next call: that is not what it made instead of the other thread's."""

    def body() -> None:
        side, me = dist.new_group(), dist.get_rank()

        def save() -> None:
            for step in range(4):
                if me != 2 or step != 2:
                    dist.all_gather([torch.empty(1) for _ in range(4)], torch.ones(1), group=side)

        saver = threading.Thread(target=save)
        saver.start()
        for _ in range(3):
            dist.all_reduce(torch.ones(2), group=dist.group.WORLD)
        saver.join()
        dist.barrier()

    outcome = four.run(body, deadline=SOON_S)  # that the other threads only wait for theirs nobody knows
    finding = only(outcome)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (2,))
    assert lines(finding)[0] == {body.__code__.co_firstlineno + 6}
    assert finding.sides[0].did == "leaves out all_gather #3 on '1' (ranks 0, 1, 2, 3)"


def in_a_comprehension() -> None:
    groups = [dist.new_group(), dist.new_group()]
    order = groups if dist.get_rank() == 0 else groups[::-1]
    [dist.all_reduce(torch.ones(1), group=group) for group in order]


def test_two_orders_of_one_line_in_a_comprehension_are_a_deadlock() -> None:
    """Each rank would come to the other's group: none of the two took the wrong one."""
    with World(2) as world:
        outcome = world.run(in_a_comprehension, deadline=60.0)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ())


def test_a_wrong_group_in_the_other_arm_of_one_line() -> None:
    """Both calls are written in that line; a rank makes one of them."""

    def body() -> None:
        pair, me = dist.new_group([0, 1]), dist.get_rank()
        dist.all_reduce(torch.ones(1), group=pair) if me == 1 else dist.all_reduce(torch.ones(1))

    with World(3) as world:
        finding = only(world.run(body, deadline=DEADLINE_S))
    assert (finding.kind, finding.culprits) == (FindingKind.GROUP, (1,))


def all_where_two_are_meant(me: int) -> None:
    """The partner waits for it at that line, and is a member of what it took: the third has nothing to do with it."""
    pair = dist.new_group([0, 2])
    if me in (0, 2):
        dist.broadcast(torch.ones(4), src=0, group=dist.group.WORLD if me == 0 else pair)


def a_neighbour_of_another_division(me: int) -> None:
    """Those that it should have met wait for it, and one of those that it waits for is among them."""
    odd = [dist.new_group([0, 3, 5]), dist.new_group([1, 2, 4])][me in (1, 2, 4)]
    half = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])][me > 2]
    dist.all_reduce(torch.ones(1), group=odd)
    dist.all_gather([torch.ones(1) for _ in range(3)], torch.ones(1), group=odd if me == 3 else half)


def a_root_that_the_other_has_left_already(me: int) -> None:
    """The one that it waits for came to that line as well, and was done there."""
    most, rest = dist.new_group([0, 1, 2, 3]), dist.new_group([2, 3])
    group, root, size = (rest, 2, 2) if me == 3 else (most, 0, 4)
    if me < 4:
        into = [torch.ones(1) for _ in range(size)] if me == root else None
        dist.gather(torch.ones(1), into, dst=root, group=group)


@pytest.mark.parametrize(
    ("body", "ranks", "odd"),
    [
        (all_where_two_are_meant, 3, 0),
        (a_neighbour_of_another_division, 6, 3),
        (a_root_that_the_other_has_left_already, 5, 3),
    ],
)
def test_nobody_else_is_blamed_for_a_wrong_group_at_a_line_of_all(
    body: Callable[[int], None], ranks: int, odd: int
) -> None:
    with World(ranks) as world:
        finding = only(world.run(_as_rank, body, deadline=DEADLINE_S))
    assert finding.culprits in ((), (odd,))
    assert odd in {rank for side in finding.sides for rank in side.ranks}


def _as_rank(body: Callable[[int], None]) -> None:
    body(dist.get_rank())
