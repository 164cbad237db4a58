"""Ranks in rows and columns: a rank on the other axis, or a round ahead on one of them, and never the one beside it.

Whoever does not come to a call holds up ranks in several groups, and what others call meanwhile may meet by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome

DEADLINE_S = 60.0
Act: TypeAlias = Callable[[], object]


@pytest.fixture(scope="module")
def six() -> Iterator[World]:
    with World(6) as world:
        yield world


def axes(rows: int, columns: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """The groups of this rank's row and of its column."""
    me = dist.get_rank()
    along = [dist.new_group([row * columns + each for each in range(columns)]) for row in range(rows)]
    across = [dist.new_group([each * columns + column for each in range(rows)]) for column in range(columns)]
    return along[me // columns], across[me % columns]


def call(op: str, group: dist.ProcessGroup, turn: int) -> None:
    if op == "sum":
        dist.all_reduce(torch.ones(2), group=group)
    else:
        ranks = dist.get_process_group_ranks(group)
        dist.broadcast(torch.ones(2), ranks[turn % len(ranks)], group=group)


def wrong_axis(
    shape: tuple[int, int], ops: tuple[str, str], who: int, at: tuple[int, int], phase: str, last: bool
) -> None:
    along, across = axes(*shape)
    turn, turns = at
    for each in range(turns):
        odd = dist.get_rank() == who and each == turn
        call(ops[0], across if odd and phase == "first" else along, each)
        call(ops[1], along if odd and phase == "second" else across, each)
    if last:
        dist.barrier()


def miscounted(
    shape: tuple[int, int], ops: tuple[str, str], who: int, at: tuple[int, int], what: str, last: bool
) -> None:
    along, across = axes(*shape)
    turn, turns = at
    for each in range(turns):
        odd = dist.get_rank() == who and each == turn
        if not (odd and what == "no first"):
            call(ops[0], along, each)
        if odd and what == "no second":
            continue
        call(ops[1], across, each)
        if odd and what == "second again":
            call(ops[1], across, each)
    if last:
        dist.barrier()


def told(outcome: Outcome) -> tuple[FindingKind, tuple[int, ...]]:
    (finding,) = outcome.findings
    return finding.kind, finding.culprits


@pytest.mark.parametrize(
    ("shape", "ops", "who", "at", "phase", "last"),
    [
        pytest.param((2, 2), ("sum", "sum"), 0, (0, 1), "first", False, id="first-of-one"),
        pytest.param((2, 2), ("cast", "cast"), 0, (0, 1), "first", False, id="roots"),
        pytest.param((2, 3), ("sum", "sum"), 4, (0, 1), "first", False, id="it-meets-another-line"),
        pytest.param((2, 3), ("sum", "sum"), 5, (0, 1), "second", True, id="second-of-one"),
        pytest.param((2, 3), ("sum", "sum"), 1, (0, 3), "first", True, id="first-of-three"),
        pytest.param((2, 3), ("sum", "sum"), 0, (1, 3), "first", False, id="in-the-middle"),
        pytest.param((2, 3), ("sum", "cast"), 3, (0, 1), "second", True, id="another-op"),
        pytest.param((3, 2), ("sum", "sum"), 0, (0, 3), "second", False, id="tall"),
        pytest.param((3, 2), ("cast", "cast"), 4, (1, 3), "first", False, id="tall-roots"),
    ],
)
def test_the_other_axis(
    four: World,
    six: World,
    shape: tuple[int, int],
    ops: tuple[str, str],
    who: int,
    at: tuple[int, int],
    phase: str,
    last: bool,
) -> None:
    world = four if shape == (2, 2) else six
    outcome = world.run(wrong_axis, shape, ops, who, at, phase, last, deadline=DEADLINE_S)
    assert told(outcome) == (FindingKind.GROUP, (who,))


@pytest.mark.parametrize(
    ("shape", "ops", "who", "at", "what", "last"),
    [
        pytest.param((2, 3), ("sum", "sum"), 2, (0, 1), "no first", False, id="of-one"),
        pytest.param((2, 3), ("sum", "sum"), 0, (1, 3), "no first", False, id="of-three"),
        pytest.param((2, 3), ("sum", "cast"), 4, (2, 3), "no first", False, id="the-last"),
        pytest.param((2, 2), ("sum", "cast"), 3, (0, 3), "no second", True, id="roots-differ-since"),
        pytest.param((2, 3), ("sum", "cast"), 1, (0, 3), "no second", True, id="siblings-know-the-root"),
        pytest.param((3, 2), ("sum", "cast"), 4, (1, 3), "no second", False, id="tall"),
        pytest.param((2, 2), ("sum", "cast"), 3, (0, 3), "second again", True, id="again-by-another-line"),
        pytest.param((2, 2), ("sum", "cast"), 2, (1, 3), "second again", False, id="again-in-the-middle"),
    ],
)
def test_a_call_too_few_or_too_many_on_one_axis(
    four: World,
    six: World,
    shape: tuple[int, int],
    ops: tuple[str, str],
    who: int,
    at: tuple[int, int],
    what: str,
    last: bool,
) -> None:
    world = four if shape == (2, 2) else six
    outcome = world.run(miscounted, shape, ops, who, at, what, last, deadline=DEADLINE_S)
    assert told(outcome) == (FindingKind.EXTRA if "again" in what else FindingKind.MISSING, (who,))


def test_one_that_has_its_tensor_groups_from_the_data_axis(four: World) -> None:
    """Each call of it meets another line's, or waits: all four wait in a circle in the end."""

    def body() -> None:
        along, across = axes(2, 2)
        tensor = across if dist.get_rank() == 1 else along
        for _ in range(4):
            dist.all_reduce(torch.ones(2), group=tensor)
            dist.all_reduce(torch.ones(2), group=across)

    assert told(four.run(body, deadline=DEADLINE_S)) == (FindingKind.GROUP, (1,))


def test_two_that_begin_with_the_other_axis(six: World) -> None:
    """Who returns has left nothing out: it was as often at that line as those that wait for it."""

    def body() -> None:
        along, across = axes(2, 3)
        first = dist.get_rank() // 4
        for each in range(first, first + 3):
            dist.all_reduce(torch.ones(2), group=along if each % 2 else across)

    assert told(six.run(body, deadline=DEADLINE_S)) == (FindingKind.GROUP, (4, 5))


def test_who_has_groups_of_another_size_is_on_no_other_axis(six: World) -> None:
    def body() -> None:
        wide, narrow = dist.new_group([0, 1, 2, 3]), dist.new_group([4, 5])
        own, rank = narrow if dist.get_rank() > 3 else wide, dist.get_rank()
        for each in range(3):
            if rank != 2 or each != 1:
                dist.all_reduce(torch.ones(2), group=own)

    kind, culprits = told(six.run(body, deadline=DEADLINE_S))
    assert (kind, culprits) == (FindingKind.MISSING, (2,))


def test_what_stands_twice_in_one_line_says_nothing_of_groups(four: World) -> None:
    def body() -> None:
        inner = dist.new_group([1, 2])
        near, far = torch.ones(2), torch.ones(3)
        todo: list[Act] = [lambda: dist.all_reduce(near, group=inner), lambda: dist.all_reduce(far)]
        mine = {0: todo[1:], 1: todo[::-1], 2: todo, 3: todo[1:]}
        for each in mine[dist.get_rank()]:
            each()

    kind, culprits = told(four.run(body, deadline=DEADLINE_S))
    assert (kind, culprits) != (FindingKind.GROUP, (2,))


def columns_in_turn(extra: bool) -> None:
    """Each column has its own step to meet at: how often the others have met by then says nothing of one."""
    along, across = axes(2, 3)
    me = dist.get_rank()
    for step in range(9):
        dist.all_reduce(torch.ones(2), group=along)
        if extra and me == 0:
            dist.all_reduce(torch.ones(2), group=along)
        if step % 3 == me % 3 and (extra or (me, step) != (4, 4)):
            dist.all_reduce(torch.ones(3), group=across)
    dist.barrier()


@pytest.mark.parametrize(("extra", "guilty"), [(True, 0), (False, 4)])
def test_of_columns_that_take_turns_no_innocent_is_blamed(six: World, extra: bool, guilty: int) -> None:
    outcome = six.run(columns_in_turn, extra, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert set(finding.culprits) <= {guilty}, outcome.summary()


def halves_of_their_own() -> None:
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    me = dist.get_rank()
    for _ in range(3 if me % 2 else 0):
        dist.all_reduce(torch.ones(2), group=halves[1])
    for _ in range(0 if me % 2 else 2 + (me == 0)):
        dist.barrier(group=halves[0])
    dist.barrier()


def test_what_another_half_does_says_nothing_of_one_that_does_something_else(four: World) -> None:
    outcome = four.run(halves_of_their_own, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert set(finding.culprits) <= {0}, outcome.summary()
