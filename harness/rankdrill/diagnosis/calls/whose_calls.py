"""Calls of two ranks side by side: up to which, from where on, and whose say what was to be done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.calls.sequences import Parting, calls_on
from rankdrill.ledger import LedgerView
from rankdrill.step import Step

__all__ = ["comes_as", "from_one_start", "key_of", "up_to"]


def comes_as(rank: int, others: Collection[int], group: str, number: int, views: Sequence[LedgerView]) -> int:
    """Which of the `others` made their call of that `number` where `rank` has called, too, if any did: its own branch
    says what it left out.
    """
    own = {step.site.place for step in calls_on(group, views[rank]).values() if step.site is not None}
    made = {other: calls_on(group, views[other]).get(number) for other in sorted(others)}
    there = (one for one, step in made.items() if step is not None and step.site is not None and step.site.place in own)
    return next(there, min(others))


def up_to(number: int, group: str, view: LedgerView) -> dict[int, Step]:
    return {sequence: step for sequence, step in calls_on(group, view).items() if sequence <= number}


def from_one_start(theirs: Mapping[int, Step], mine: Mapping[int, Step]) -> tuple[list[Step], list[Step]]:
    """Both in order, from the first call that both ledgers still tell of."""
    first = max(min(calls, default=0) for calls in (theirs, mine))
    one, other = ([calls[number] for number in sorted(calls) if number >= first] for calls in (theirs, mine))
    return one, other


def key_of(found: Parting) -> object:
    return found.kind, found.call.sequence, found.call.op, found.call.site
