"""Who is at fault, where real ranks would show it only now and then."""

from __future__ import annotations

from rankdrill.worlds import Death, RankOutcome, Status
from rankdrill.worlds.judge import blame


def test_one_that_died_is_a_cause_before_one_that_never_ended() -> None:
    stuck = RankOutcome(0, Status.STUCK)
    died = RankOutcome(1, Status.DIED, death=Death(None, 9, 500), at_ns=500)
    raised = RankOutcome(2, Status.RAISED, exception=KeyError("first"), at_ns=400)
    assert blame([stuck, died, raised]) == ((2, 1, 0), ())
