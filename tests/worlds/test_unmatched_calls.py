"""A call left out or made once too often: who, and at which line, however late it shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
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


def _is_at(finding: Finding, line: int) -> None:
    first = finding.sides[0]
    assert first.ranks == (ODD,)
    assert first.sites[0] is not None
    assert (first.sites[0].file, first.sites[0].line) == (guilty_line.__code__.co_filename, line)
