"""A call left out or made once too often: who, and at which line, however late it shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Outcome
from tests.worlds.parting import EXTRA, MISSING, ODD, RIGHT, guilty_line, me

Body = Callable[[], None]
DEADLINE_S = 60.0


def told(outcome: Outcome) -> Finding:
    assert outcome.culprits == (ODD,), outcome.summary()
    assert ODD not in outcome.victims
    (finding,) = outcome.findings
    return finding


@pytest.mark.parametrize("body", MISSING, ids=lambda body: body.__name__)
def test_a_call_left_out(four: World, body: Body) -> None:
    finding = told(four.run(body, deadline=DEADLINE_S))
    assert finding.kind is FindingKind.MISSING
    _is_at(finding, guilty_line(body))
    assert f"rank {ODD} leaves out " in finding.lines[0]


@pytest.mark.parametrize("body", EXTRA, ids=lambda body: body.__name__)
def test_a_call_too_many(four: World, body: Body) -> None:
    finding = told(four.run(body, deadline=DEADLINE_S))
    assert finding.kind is FindingKind.EXTRA
    _is_at(finding, guilty_line(body))
    assert f"rank {ODD} makes one call more, " in finding.lines[0]


@pytest.mark.parametrize("body", RIGHT, ids=lambda body: body.__name__)
def test_where_a_call_is_made_is_nobodys_mistake(four: World, body: Body) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
    assert outcome.findings == ()


def test_calls_in_another_order_are_no_missing_call(four: World) -> None:
    """Neither line comes after the other: a run of the body comes to one of them."""

    def body() -> None:
        if me() == ODD:
            dist.barrier()
            dist.all_gather_object([None] * 4, 1)
        else:
            dist.all_gather_object([None] * 4, 1)
            dist.barrier()

    finding = told(four.run(body, deadline=DEADLINE_S))
    assert finding.kind is FindingKind.CALL_ORDERING


def test_two_that_leave_different_calls_out_are_told_apart() -> None:
    def body() -> None:
        for turn in range(3):
            if me() == 1 and turn == 0:
                continue
            dist.barrier()
        if me() != 4:
            dist.barrier()

    with World(6) as six:
        outcome = six.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (1, 4)
    (finding,) = outcome.findings
    ours = [side for side in finding.sides if "leaves out" in side.did]
    assert [side.ranks for side in ours] == [(1,), (4,)]


def summed() -> None:
    dist.all_reduce(torch.ones(2))


def one_is_a_call_behind() -> None:
    for turn in range(3):
        summed()
        if not (me() == ODD and turn == 1):
            dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(2), 0)


def one_is_a_call_ahead() -> None:
    for turn in range(3):
        summed()
        if me() == ODD and turn == 1:
            dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(2), 0)


def one_is_two_calls_behind() -> None:
    for turn in range(4):
        summed()
        if not (me() == ODD and turn in (1, 2)):
            dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(2), 0)


def one_is_two_calls_ahead() -> None:
    for turn in range(4):
        summed()
        dist.all_reduce(torch.ones(2))
        if me() == ODD and turn in (1, 2):
            dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(2), 0)


def one_leaves_three_out_and_returns() -> None:
    for turn in range(9):
        summed()
        if not (me() == ODD and turn in (2, 3, 6)):
            dist.all_reduce(torch.ones(2))


def one_goes_on_with_another_call() -> None:
    for turn in range(3):
        summed()
        if not (me() == ODD and turn == 1):
            dist.broadcast(torch.ones(2), 0)


@pytest.mark.parametrize(
    ("body", "shifted"),
    [
        (one_is_a_call_behind, "all_reduce #3 on 'default' (its #3 is the others' #4), at "),
        (one_is_a_call_ahead, "all_reduce #2 on 'default' (its #3 is the others' #2), at "),
        (one_is_two_calls_behind, "leaves out all_reduce #3 on 'default' (the first of 2 there), at "),
        (one_is_two_calls_ahead, "makes one call more, all_reduce #4 on 'default' (the first of 2 there), at "),
        (one_leaves_three_out_and_returns, "leaves out all_reduce #5 on 'default' (the first of 3 there), at "),
        (one_goes_on_with_another_call, "broadcast #3 on 'default', at "),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_who_goes_on_a_call_apart_is_told_which_calls_meet(four: World, body: Body, shifted: str) -> None:
    assert shifted in told(four.run(body, deadline=DEADLINE_S)).lines[0]


def _is_at(finding: Finding, line: int) -> None:
    first = finding.sides[0]
    assert first.ranks == (ODD,)
    assert first.sites[0] is not None
    assert (first.sites[0].file, first.sites[0].line) == (guilty_line.__code__.co_filename, line)


@pytest.mark.parametrize("turn", [0, 3, 9])
def test_of_two_that_are_at_odds_the_call_is_told_by_which_they_part(two: World, turn: int) -> None:
    """It shows much later, where one of them waits for a message of the other."""

    def body() -> None:
        for step in range(10):
            if me() == 0 and step == turn:
                dist.all_reduce(torch.ones(1))  # the odd one
            dist.all_reduce(torch.ones(1))
        for _ in range(2):
            if me() == 1:
                dist.send(torch.ones(4), 0)
            else:
                dist.recv(torch.ones(4), 1)

    (finding,) = two.run(body, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, ())
    assert [site.line for site in finding.sides[0].sites if site] == [body.__code__.co_firstlineno + 3]
    assert f"rank 0 makes all_reduce #{turn} on 'default'" in finding.lines[0]
    assert "which rank 1 leaves out, if it is not one too many" in finding.lines[0]
