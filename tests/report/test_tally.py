"""When a drill as a whole is well."""

from __future__ import annotations

from rankdrill.report import Tally
from tests.report.samples import PASSED, RESULTS


def test_a_drill_is_ok_if_something_was_drilled_and_nothing_failed() -> None:
    assert Tally([PASSED]).ok
    assert not Tally(RESULTS).ok
    assert not Tally([]).ok, "of what was never tried nothing is known"
