"""Threads that torch starts, and that call on the user's group, as `async_save` does: nothing orders them and the rank.

The source does not show them. But where on one rank a call of another thread lies between two calls of one such
operation, they came as they came; on another rank they come otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.own_threads import on_the_way
from rankdrill.diagnosis.calls.source import is_for_some_ranks
from rankdrill.diagnosis.calls.turns import ORDER
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.ledger import LedgerView
from rankdrill.ledger.format import Record
from rankdrill.site import outward
from rankdrill.step import NO_SEQUENCE, Kind, Site

__all__ = ["beside_torch", "met_by_chance"]

_IN_A_THREAD = "checkpoint.async_save"


def beside_torch(views: Mapping[int, LedgerView], group: str = "") -> Finding | None:
    """The first such pair of calls, on `group` if that is given, with the ranks that made both."""
    for view in views.values():
        for calls in _by_group(view, group).values():
            if (pair := _interleaved(calls)) is not None:
                return _told(*pair, views)
    return None


def met_by_chance(finding: Finding) -> Finding:
    """`finding`, as the order of two calls if it tells of one in a thread of torch's and of one that nothing orders."""
    if not any(_is_beside(one, other) for one, other in permutations(finding.sides, 2)):
        return finding
    return replace(finding, kind=FindingKind.CALL_ORDERING, culprits=())


def _is_beside(one: Side, other: Side) -> bool:
    """Whether where `one` is torch has started a thread, on any rank, and who comes by there goes on to where the
    `other` is, waiting for nothing.
    """
    site = one.sites[0]
    if site is None or site.via != _IN_A_THREAD or is_for_some_ranks(site):
        return False
    return any(on_the_way(site, goes_on) for goes_on in outward(other.sites[0]))


def _by_group(view: LedgerView, group: str) -> dict[str, list[Record]]:
    """The collectives of a rank on each group, in order."""
    found: dict[str, list[Record]] = {}
    for record in view.where(lambda kind, _: kind is Kind.COLLECTIVE):
        step = record.step
        if step.sequence != NO_SEQUENCE and step.site is not None and step.target == (group or step.target):
            found.setdefault(step.target, []).append(record)
    return found


def _interleaved(calls: list[Record]) -> tuple[Record, Record] | None:
    """A call of torch's thread and one of another thread that came between two of the same operation."""
    for first in calls:
        if not _is_torchs(first):
            continue
        mine = [at for at, each in enumerate(calls) if _are_of_one(first, each)]
        between = (each for each in calls[mine[0] : mine[-1]] if each.thread != first.thread)
        if (other := next(between, None)) is not None:
            return first, other
    return None


def _is_torchs(record: Record) -> bool:
    return record.step.site is not None and record.step.site.via == _IN_A_THREAD


def _are_of_one(one: Record, other: Record) -> bool:
    return _is_torchs(other) and (one.thread, one.step.site) == (other.thread, other.step.site)


def _told(one: Record, other: Record, views: Mapping[int, LedgerView]) -> Finding:
    group = one.step.target
    places = [_who(record, group, views) for record in (one, other)]
    culprits = tuple(sorted({*places[0], *places[1]}))
    many = len(places[0]) > 1
    issue = f"{'have' if many else 'has'} {_IN_A_THREAD} call on {group!r} in a thread of its own"
    call = named(other.step).removesuffix(other.step.call) + other.step.op
    beside = f"{'go' if len(places[1]) > 1 else 'goes'} on to {call}, and nothing orders the two"
    sides = (
        side_of(list(places[0]), issue, list(places[0].values())),
        side_of(list(places[1]), beside, list(places[1].values())),
    )
    return Finding(FindingKind.CALL_ORDERING, f"{_IN_A_THREAD} on {group!r}", ORDER, sides, culprits)


def _who(record: Record, group: str, views: Mapping[int, LedgerView]) -> dict[int, Site | None]:
    """The ranks that made such a call, from that line, and where."""
    line = _place(record)
    return {
        rank: each.step.site
        for rank, view in sorted(views.items())
        for each in _by_group(view, group).get(group, ())
        if _place(each) == line
    }


def _place(record: Record) -> tuple[str, int] | None:
    return record.step.site.place if record.step.site is not None else None
