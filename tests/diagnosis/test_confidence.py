"""Each kind of finding says how sure it is, and what would confirm it."""

from __future__ import annotations

import pytest

from rankdrill.diagnosis import Confidence, Finding, FindingKind, Side
from rankdrill.diagnosis.confidence import confidence_in, confirmed_by

SIDES = Side((2,), "makes no more calls", (None,)), Side((0, 1), "are in all_reduce #3", (None, None))


@pytest.mark.parametrize("kind", FindingKind)
def test_each_kind_says_what_would_confirm_it(kind: FindingKind) -> None:
    told = confirmed_by(Finding(kind, "all_reduce #3 on 'default'", "", SIDES, (2,)))
    assert told.startswith(("that it ", "that nothing ", "a longer deadline: "))
    assert "{" not in told
    assert told == told.strip().rstrip(".")


def test_who_is_at_fault_is_likely_where_others_tell() -> None:
    finding = Finding(FindingKind.MISSING, "all_reduce #3 on 'default'", "", SIDES, (2,))
    assert confidence_in(finding) is Confidence.LIKELY
    assert confirmed_by(finding) == "that it passes once rank 2 makes that call, or no rank does"


def test_what_is_on_record_is_certain_also_where_nobody_is_at_fault() -> None:
    assert confidence_in(Finding(FindingKind.DEADLOCK, "rank 0 waits for rank 2", "", SIDES)) is Confidence.CERTAIN
    assert confidence_in(Finding(FindingKind.LOST_RANK, "barrier #0", "", SIDES, (2,))) is Confidence.CERTAIN


def test_ranks_that_disagree_may_each_be_right() -> None:
    finding = Finding(FindingKind.OPERATOR, "all_reduce #3 on 'default'", "reduce op", SIDES)
    assert confidence_in(finding) is Confidence.POSSIBLE
    assert confirmed_by(finding) == "which of the sides is as it is meant to be"
