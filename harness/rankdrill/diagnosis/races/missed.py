"""A message race that checks of ranks have missed: they raised, so that none of them tells what it has received.

What there is to know is in the ledgers: who sent what was taken from anybody. Not what it was: that it was not the same
is what a check says that looks at it. So only such count: of the rank that has received so, at what keeps the messages
in the order in which they came; of another one, at what it has got from that rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from math import prod

from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called
from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.races.account import IN_PLACES, Race, told
from rankdrill.diagnosis.races.order import taken_from_anybody, unordered
from rankdrill.diagnosis.races.places import kept_in
from rankdrill.diagnosis.races.race import message_race
from rankdrill.diagnosis.races.reception import reception_at
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import RECV, Kind, Site

__all__ = ["missed_race"]

_SHAPE = re.compile(r"\[([\d,]*)\]")
_RECEIVE = frozenset({"recv", "irecv"})


def missed_race(failed: Mapping[int, Site | None], views: Mapping[int, LedgerView]) -> Finding | None:
    """That which ranks have looked at where they `failed`, at a line each; None where they looked at something else."""
    sites = {rank: site for rank, site in failed.items() if site is not None}
    for rank, view in views.items():
        taken = list(_taken_by(view))
        asked = any(_has_looked_at(site, rank, views[other]) for other, site in sites.items() if other != rank)
        if taken and asked and (found := message_race({rank: taken}, views)) is not None:
            return found
        for each in taken if rank in sites else ():
            pair = unordered(rank, each, views) if _is_checked(each.site, sites[rank]) else None
            if pair is not None:
                return told({rank: Race(each, pair, IN_PLACES)})
    return None


def _has_looked_at(failed: Site, sender: int, view: LedgerView) -> bool:
    """Whether the line that `failed` reads what was received from `sender`, in the same function."""
    function = function_around(failed)
    if function is None:
        return False
    lines = {
        record.step.site.line
        for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE)
        if record.step.op == RECV and record.step.message is not None and record.step.message.peer == sender
        if record.step.site is not None and (record.step.site.file, record.step.site.function) == _place(failed)
    }
    received = {
        call.args[0].id
        for line in lines
        for call in calls_at(function, line)
        if name_called(call) in _RECEIVE and call.args and isinstance(call.args[0], ast.Name)
    }
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name) and node.lineno == failed.line)
    return any(node.id in received for node in names)


def _place(site: Site) -> tuple[str, str]:
    return site.file, site.function


def _is_checked(received: Site, failed: Site) -> bool:
    """Whether the line that `failed` looks at what keeps the messages `received`, in the order in which they came."""
    reception = reception_at(received)
    container = kept_in(reception) if reception is not None else None
    if reception is None or container is None or _place(received) != _place(failed):
        return False
    return any(use.lineno == failed.line for use in reception.written.uses(container))


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
