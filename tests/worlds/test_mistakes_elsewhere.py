"""A mistake that shows where another group, or a message, is waited for: whose it is, and at which line."""

from __future__ import annotations

import pytest

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.worlds.elsewhere import ELSEWHERE, ODD, Body
from tests.worlds.parting import guilty_line

DEADLINE_S = 60.0


@pytest.mark.parametrize(("body", "kind"), ELSEWHERE.items(), ids=lambda it: getattr(it, "__name__", str(it)))
def test_who_where_and_what(four: World, body: Body, kind: FindingKind) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.culprits == (ODD,), outcome.summary()
    (finding,) = outcome.findings
    assert finding.kind is kind
    assert {site.line for site in finding.sides[0].sites if site is not None} == {guilty_line(body)}
