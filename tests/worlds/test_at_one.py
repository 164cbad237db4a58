"""Whether all ranks say the same of a run, in which nothing may be wrong: then nobody looks any further."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rankdrill.diagnosis import Unwaited
from rankdrill.ledger import LedgerView, State, all_ended
from rankdrill.worlds.processes.messages import NO_ACCOUNT, Account
from rankdrill.worlds.processes.watching import Ending, at_one
from tests.worlds.ended import OPEN, barrier, ledger, raised, returned

QUIET = Account(3, 1, messages=0)
NOT_WAITED_FOR = (Unwaited("all_reduce #2", None),)


def test_ranks_that_say_the_same() -> None:
    assert at_one([Ending(returned(rank, rank), QUIET) for rank in range(3)])


@pytest.mark.parametrize(
    ("change", "harmless"),
    [
        ({"collectives": 2}, True),
        ({"groups": 0}, True),
        ({"messages": 7}, False),
        ({"unwaited": NOT_WAITED_FOR}, False),
        ({"updates": 1}, False),
        ({"collectives": -1}, False),
        ({"groups": -1}, False),
    ],
    ids=str,
)
def test_one_of_them_that_says_something_else(change: dict[str, Any], harmless: bool) -> None:
    """What all say alike may be wrong all the same: `harmless` is only how much they did."""
    quiet, other = Ending(returned(0), QUIET), Ending(returned(1), replace(QUIET, **change))
    assert not at_one([quiet, other])
    assert not at_one([other, quiet])
    assert at_one([other, other]) is harmless


def test_a_rank_that_raised_or_gave_no_account() -> None:
    assert not at_one([Ending(returned(0), QUIET), Ending(raised(1, KeyError("k")), QUIET)])
    assert not at_one([Ending(returned(0), NO_ACCOUNT), Ending(returned(1), NO_ACCOUNT)])


def test_whether_all_steps_have_ended_is_seen_without_reading_them() -> None:
    assert all_ended([])
    assert all_ended([LedgerView()])
    assert all_ended([ledger(OPEN, barrier(0)), ledger(barrier(0))])
    for state in State:
        assert all_ended([ledger(OPEN, barrier(0)), ledger(OPEN, barrier(0), last=state)]) is (state is State.ENDED)
