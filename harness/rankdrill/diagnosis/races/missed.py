"""A message race that checks of ranks have missed: they raised, so that none of them tells what it has received.

What there is to know is in the ledgers: who sent what was taken from anybody. Not what it was: that it was not the same
is what the checks say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from math import prod

from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.races.account import IN_PLACES, Race, told
from rankdrill.diagnosis.races.order import taken_from_anybody, unordered
from rankdrill.diagnosis.races.places import kept_in
from rankdrill.diagnosis.races.race import message_race
from rankdrill.diagnosis.races.reception import reception_at
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import SEND, Kind, Site

__all__ = ["missed_race"]

_SHAPE = re.compile(r"\[([\d,]*)\]")


def missed_race(failed: Mapping[int, Site | None], views: Mapping[int, LedgerView]) -> Finding | None:
    """That at one of the ranks that `failed`, at a line each, or at one that has sent something to one of those.

    None where there is none, nor a rank that has looked, in that line, at what it has kept in the order of its coming.
    """
    taken = {
        rank: list(_taken_by(view))
        for rank, view in views.items()
        if rank in failed or _has_sent_to(failed.keys(), view)
    }
    if (found := message_race(taken, views)) is not None:
        return found
    for rank, site in failed.items():
        for each in taken[rank]:
            pair = unordered(rank, each, views) if site is not None and _is_checked(each.site, site) else None
            if pair is not None:
                return told({rank: Race(each, pair, IN_PLACES)})
    return None


def _is_checked(received: Site, failed: Site) -> bool:
    """Whether the line that `failed` looks at what keeps the messages `received`, in the order in which they came."""
    reception = reception_at(received)
    container = kept_in(reception) if reception is not None else None
    if reception is None or container is None or (received.file, received.function) != (failed.file, failed.function):
        return False
    return any(use.lineno == failed.line for use in reception.written.uses(container))


def _has_sent_to(failed: Collection[int], view: LedgerView) -> bool:
    messages = (record.step for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE))
    return any(step.op == SEND and step.message is not None and step.message.peer in failed for step in messages)


def _taken_by(view: LedgerView) -> Iterator[Taken]:
    by_line: dict[tuple[Site, str, int], list[Record]] = {}
    for record in taken_from_anybody(view):
        if record.step.site is not None and record.step.message is not None:
            key = record.step.site, record.step.target, record.step.message.tag
            by_line.setdefault(key, []).append(record)
    for key, records in by_line.items():
        senders = sorted({record.step.message.peer for record in records if record.step.message is not None})
        if len(senders) > 1:
            yield Taken(*key, tuple(senders), differ=True, elements=min(map(_elements, records)))


def _elements(record: Record) -> int:
    shape = _SHAPE.search(record.step.fingerprint)
    return prod(int(size) for size in shape[1].split(",") if size) if shape is not None else 1
