"""A race of messages that shows by their sizes or dtypes: one's header came where another one's body was expected."""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.races.account import TOGETHER
from rankdrill.diagnosis.races.lines import is_put_together
from rankdrill.diagnosis.races.reception import reception_at
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import RECV, SEND, Kind, Site

__all__ = ["race_shown_by"]


def race_shown_by(noticed: Finding, views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where a message that was `noticed` not to fit was taken from anybody, as being of the same sender
    as another one; None where it was not.
    """
    if noticed.kind not in (FindingKind.SIZE, FindingKind.DATATYPE):
        return None
    for side in noticed.sides:
        for rank, site in zip(side.ranks, side.sites, strict=True):
            others = [other for other in noticed.sides if other is not side]
            if site is None or len(others) != 1:
                continue
            last, record = _last_two(site, views[rank])
            if record is None or last is None or not record.step.is_from_anybody or not _is_put_together_at(site):
                continue
            # Who sent the first of the two has sent the second, too: it only came later than another one's.
            elsewhere = last.step.message is not None and (last.step.message.peer,) != others[0].ranks
            if elsewhere and _is_above(last, record) and _has_sent_more(last, rank, views):
                return _told(rank, record, site, others)
    return None


def _is_above(first: Record, second: Record) -> bool:
    """Whether it is further up in the same function: of two lines that receive in turn the first."""
    one, other = first.step.site, second.step.site
    same = one is not None and other is not None and (one.file, one.function) == (other.file, other.function)
    return one is not None and other is not None and same and one.line < other.line


def _has_sent_more(taken: Record, receiver: int, views: Sequence[LedgerView]) -> bool:
    """Whether the sender of what was `taken` has sent something to the same rank after that."""
    message, group = taken.step.message, taken.step.target
    if message is None or not 0 <= message.peer < len(views):
        return False
    calls = views[message.peer].where(lambda kind, state: kind is Kind.COLLECTIVE)
    steps = (record.step for record in calls if record.step.op == SEND and record.step.target == group)
    sent = (step.message for step in steps if step.message is not None)
    return any((each.peer, each.tag) == (receiver, message.tag) and each.number > message.number for each in sent)


def _last_two(site: Site, view: LedgerView) -> tuple[Record | None, Record | None]:
    """The newest receive at that line, and before it the one whose message came last."""
    calls = view.where(lambda kind, state: kind is Kind.COLLECTIVE)
    received = [record for record in calls if record.step.op == RECV]
    newest = next((record for record in reversed(received) if record.step.site == site), None)
    before = [each for each in received if newest is not None and each.index < newest.index]
    return before[-1] if before else None, newest


def _is_put_together_at(site: Site) -> bool:
    reception = reception_at(site)
    return reception is not None and is_put_together(reception)


def _told(rank: int, record: Record, site: Site, others: Sequence[Side]) -> Finding:
    step, message = record.step, record.step.message
    tag = words.tagged(message.tag, step.target, site) if message is not None else ""
    receiver = side_of([rank], f"receives from anybody {tag}, and {TOGETHER.one}", [site])
    return Finding(FindingKind.RACE, f"recv on {step.target!r}", "peer", (receiver, *others), (rank,))
