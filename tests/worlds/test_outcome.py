"""The one verdict on a run: when it is well, and what it raises when it is not."""

from __future__ import annotations

import pytest

from rankdrill import World
from rankdrill.errors import FaultNotFired
from rankdrill.faults import Plan
from tests.worlds import bodies


def test_a_run_whose_fault_did_not_strike_is_not_ok_although_all_returned(two: World) -> None:
    outcome = two.run(bodies.rank, plan=Plan.parse("rank 0: kill after file.fsync"))
    assert outcome.values == [0, 1]
    assert not outcome.ok
    assert "rank 0: kill after file.fsync did not fire" in outcome.summary()
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    assert [type(error) for error in caught.value.exceptions] == [FaultNotFired]
