"""Ranks that meet in the same place and do different things there."""

from __future__ import annotations

import pytest

from rankdrill.diagnosis import Wait, odd_ones
from rankdrill.ledger import LedgerView, State
from rankdrill.step import NO_SEQUENCE, Step
from tests.worlds.ended import OPEN, barrier, ledger


def odd(*views: LedgerView, waiting: int = 0) -> dict[int, str]:
    """The odd ones where rank `waiting` waits in the last step of its ledger."""
    return odd_ones({waiting: Wait(waiting, views[waiting].records[-1], ())}, views)


def inside(*steps: Step) -> LedgerView:
    return ledger(*steps, last=State.WAITING)


def reduce(fingerprint: str, op: str = "all_reduce") -> Step:
    return barrier(0, op=op, fingerprint=fingerprint)


SUM = reduce("float32[2] sum")


def test_the_one_that_differs_is_told_with_both_calls() -> None:
    assert odd(inside(SUM), inside(barrier(0)), inside(SUM), inside(SUM)) == {
        1: "is in collective.barrier #0 on 'default', "
        "ranks 0, 2, 3 in collective.all_reduce #0 on 'default' (float32[2] sum)"
    }


def test_of_two_that_differ_in_different_ways_each_is_told_beside_most() -> None:
    most = "ranks 0, 1 in collective.all_reduce #0 on 'default' (float32[2] sum)"
    assert odd(inside(SUM), inside(SUM), inside(barrier(0)), inside(reduce("float32[3] sum"))) == {
        2: f"is in collective.barrier #0 on 'default', {most}",
        3: f"is in collective.all_reduce #0 on 'default' (float32[3] sum), {most}",
    }


def test_where_no_call_has_a_majority_all_are_told() -> None:
    assert odd(inside(SUM), inside(barrier(0))) == {
        0: "is in collective.all_reduce #0 on 'default' (float32[2] sum), rank 1 in collective.barrier #0 on 'default'",
        1: "is in collective.barrier #0 on 'default', rank 0 in collective.all_reduce #0 on 'default' (float32[2] sum)",
    }


def test_nobody_is_odd_where_all_do_the_same() -> None:
    assert odd(inside(SUM), inside(SUM)) == {}
    assert odd_ones({}, [inside(SUM), inside(barrier(0))]) == {}


def test_only_the_step_that_somebody_waits_in_is_compared() -> None:
    later, elsewhere = barrier(1), barrier(0, "pair")
    assert odd(inside(SUM, later), ledger(reduce("float32[3] sum"), later)) == {}
    assert odd(inside(elsewhere), inside(SUM)) == {}
    assert odd(inside(OPEN, SUM), ledger(elsewhere, SUM)) == {}


def test_every_step_that_somebody_waits_in_is_compared() -> None:
    views = [inside(barrier(0, "row")), inside(barrier(0, "row", "all_reduce")), inside(barrier(0)), inside(SUM)]
    waiting = {rank: Wait(rank, view.records[-1], ()) for rank, view in enumerate(views)}
    assert sorted(odd_ones(waiting, views)) == [0, 1, 2, 3]


def test_steps_that_cannot_differ_do_not_hide_those_that_do() -> None:
    pairs = [
        *((barrier(0, f"odd {n}"), barrier(0, f"odd {n}", "all_reduce")) for n in range(6)),
        *((barrier(0, f"alike {n}"), barrier(0, f"alike {n}")) for n in range(6)),
        *(
            (barrier(NO_SEQUENCE, f"message {n}", "send"), barrier(NO_SEQUENCE, f"message {n}", "recv"))
            for n in range(6)
        ),
    ]
    views = [inside(step) for pair in pairs for step in pair]
    waiting = {rank: Wait(rank, view.records[-1], ()) for rank, view in enumerate(views)}
    assert sorted(odd_ones(waiting, views)) == list(range(12))


def test_messages_have_no_place_to_meet_in() -> None:
    send, recv = (barrier(NO_SEQUENCE, op=op, fingerprint="float32[1] peer=1 tag=0") for op in ("send", "recv"))
    assert odd(inside(send), inside(recv)) == {}
    after = [inside(send, SUM), inside(recv, barrier(0))]
    waiting = {0: Wait(0, after[0].records[0], ()), 1: Wait(1, after[1].records[-1], ())}
    for order in (waiting, dict(reversed(waiting.items()))):
        assert sorted(odd_ones(order, after)) == [0, 1]


def test_a_file_that_has_the_name_of_a_group_is_no_call_on_it() -> None:
    assert odd(inside(barrier(0, "/x")), ledger(OPEN)) == {}


@pytest.mark.parametrize(
    ("op", "one", "other", "differ"),
    [
        ("all_reduce", "float32[2] sum", "float32[3] sum", True),
        ("broadcast", "float32[2] root=0", "float64[2] root=0", True),
        ("reduce", "float32[2] root=0 sum", "float32[2] root=0 max", True),
        ("all_gather", "float32[2]", "float32[3]", False),
        ("gather", "float32[2] root=0", "float32[3] root=0", False),
        ("gather", "float32[2] root=0", "float32[2] root=1", True),
        ("scatter", "float32[2] root=1", "float32[2] root=12", True),
        ("all_to_all_single", "float32[4] splits=1,3", "float32[4] splits=2,2", False),
    ],
)
def test_what_must_be_alike_depends_on_the_call(op: str, one: str, other: str, differ: bool) -> None:
    found = odd(inside(reduce(one, op)), inside(reduce(one, op)), inside(reduce(other, op)))
    assert sorted(found) == ([2] if differ else [])
