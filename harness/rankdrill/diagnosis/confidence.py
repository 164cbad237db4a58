"""How sure a finding is, and what would confirm it."""

from __future__ import annotations

from enum import StrEnum

from rankdrill.diagnosis.finding import Finding, FindingKind
from rankdrill.diagnosis.waits import name_ranks

__all__ = ["Confidence", "confidence_in", "confirmed_by"]


class Confidence(StrEnum):
    """How sure a cause is, by what was there to judge by."""

    CERTAIN = "certain"  # nothing that could still be read would change it
    LIKELY = "likely"  # what is missing could explain it otherwise, but nothing that is there does
    POSSIBLE = "possible"  # one of several that fit


_SEEN = frozenset(
    {
        FindingKind.REQUEST_LEAK,
        FindingKind.INPUT_HAZARD,
        FindingKind.LAYOUT,
        FindingKind.LEAKED_GROUP,
        FindingKind.LOST_RANK,
        FindingKind.DEADLOCK,
    }
)
"""Kinds that are on record as such. Of others who is at fault is told by what other ranks do, or the same in other
rounds: all of these could be wrong."""

_ONE_DOES_AS_THE_OTHERS = "that it passes once {who} does there as the others do"
_CONFIRMED_BY = {
    FindingKind.CALL_ORDERING: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.OPERATOR: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.ROOT: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.DATATYPE: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.SIZE: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.DEVICE: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.GROUP: _ONE_DOES_AS_THE_OTHERS,
    FindingKind.MISSING: "that it passes once {who} makes that call, or no rank does",
    FindingKind.EXTRA: "that it passes once {who} leaves that call out, or every rank makes it",
    FindingKind.UNMATCHED: "that it passes once the message has both its ends, or neither",
    FindingKind.RACE: "that it ends otherwise where the messages come in another order",
    FindingKind.MISSING_KEY: "that it passes once the key is set",
    FindingKind.LOST_UPDATE: "that nothing is lost once it is got and set in one step, as by `add` or `compare_set`",
    FindingKind.STUCK_RANK: "a longer deadline: where it passes then, {who} was slow and not stuck",
    FindingKind.LOST_RANK: "that it passes once {who} does not end there",
    FindingKind.DEADLOCK: "that it passes once one of them goes another way first",
    FindingKind.REQUEST_LEAK: "that it passes once the handle is waited for",
    FindingKind.INPUT_HAZARD: "that it passes once the handle is waited for before its memory is used",
    FindingKind.LAYOUT: "that it passes with `.contiguous()`",
    FindingKind.LEAKED_GROUP: "that it passes once the group is destroyed, or made once only",
}
_WHO_IS_RIGHT = "which of the sides is as it is meant to be"


def confidence_in(finding: Finding) -> Confidence:
    """How sure it is who is at fault; of what is on record as such, that it is wrong."""
    if finding.kind in _SEEN:
        return Confidence.CERTAIN
    return Confidence.LIKELY if finding.culprits else Confidence.POSSIBLE


def confirmed_by(finding: Finding) -> str:
    """What would confirm it, in words that follow *what would confirm it is*."""
    if confidence_in(finding) is Confidence.POSSIBLE:
        return _WHO_IS_RIGHT
    return _CONFIRMED_BY[finding.kind].format(who=name_ranks(finding.ranks))
