"""Who left while another was still connecting, from ledgers made by hand: the moments are what is tested."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankdrill.diagnosis.left_early import Departure, left_early
from rankdrill.ledger import State
from rankdrill.step import MAKES_GROUP, Kind, Step
from tests.worlds.ended import ledger

MAKING = Step(Kind.GROUP, min(MAKES_GROUP), "default", "0-2", sequence=0)
SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("after_ns", "culprits"),
    [(-SECOND_NS, (1,)), (SECOND_NS // 2, (1,)), (2 * SECOND_NS, ())],
    ids=["before", "heard a little later", "long after"],
)
def test_that_a_process_has_ended_is_heard_later_than_its_connections_close(
    after_ns: int, culprits: tuple[int, ...]
) -> None:
    failed = ledger(MAKING, last=State.RAISED)
    (late,) = failed.records
    late = replace(late, end_ns=late.begin_ns + SECOND_NS)
    ended = {1: Departure(late.end_ns + after_ns, "os._exit")}
    finding = left_early({0: late}, ended, {0: failed, 1: ledger(MAKING), 2: ledger(MAKING)})
    assert finding.culprits == culprits
