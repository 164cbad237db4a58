"""Ranks that ask a store again and again, and sleep in between: for a key that nobody sets, or a lease that one keeps.

Nobody knows how often they mean to ask. But where the deadline finds a rank at nothing else, that is what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from rankdrill.diagnosis.stores.keys import SETTING, Keys, is_there
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import Kind, Step

__all__ = ["awaited", "polled"]

FEWEST = 3  # times that it has asked
_BESIDE = frozenset({Kind.CLOCK, Kind.MEMORY})  # what a rank does between two questions
_FOR_A_KEY = frozenset({"check", "get", "wait"})
_LEASE = "compare_set"
_CHANGE = SETTING | {"delete_key", _LEASE}


def polled(rank: int, views: Mapping[int, LedgerView]) -> Wait | None:
    """What `rank`, which is in no step, waits for by asking for it again and again; None where it does not."""
    asked = _asked_again(views[rank])
    if asked is None:
        return None
    if asked.step.op == _LEASE:
        holder = _holder_of(asked.step, rank, views)
        return None if holder is None else Wait(rank, _open(asked), (holder,))
    return awaited(rank, asked, views)


def awaited(rank: int, asked: Record, views: Mapping[int, LedgerView]) -> Wait | None:
    """What `rank` would wait for, had it not given up when it had `asked` for a key; None where that is there."""
    waiting = replace(_open(asked), step=asked.step.like(op="wait"))
    if is_there(waiting, [_keys(view) for view in views.values()]):
        return None
    return Wait(rank, waiting, tuple(other for other in views if other != rank), anyone=True)


def _open(record: Record) -> Record:
    return replace(record, state=State.WAITING)


def _asked_again(view: LedgerView) -> Record | None:
    """The newest of the questions that are all it did last: always the same one, of one line."""
    last: Record | None = None
    times = 0
    for record in reversed(view.records):
        if record.step.kind in _BESIDE:
            continue
        if last is not None and not _is_the_same(record.step, last.step):
            break
        last, times = last or record, times + 1
        if times == FEWEST:
            break
    asks = last is not None and last.step.kind is Kind.STORE and last.step.op in (*_FOR_A_KEY, _LEASE)
    return last if asks and times == FEWEST else None


def _is_the_same(one: Step, other: Step) -> bool:
    return (one.kind, one.op, one.digest, one.site) == (other.kind, other.op, other.digest, other.site)


def _keys(view: LedgerView) -> Mapping[int, tuple[int, bool]]:
    keys = Keys()
    for record in view.where(lambda kind, state: kind is Kind.STORE):
        keys.take(record)
    return keys.states


def _holder_of(lease: Step, rank: int, views: Mapping[int, LedgerView]) -> int | None:
    """Who swapped that key last, and went on, and has not set it since; nobody where somebody has."""
    changes = [
        (record.begin_ns, other, record)
        for other, view in views.items()
        for record in _changes(lease, view)
        if other != rank
    ]
    if not changes:
        return None
    _, holder, record = max(changes, key=lambda change: change[0])
    return holder if record.step.op == _LEASE else None


def _changes(lease: Step, view: LedgerView) -> Iterator[Record]:
    """What a rank did to that key, but for what it asked in vain: it asked once more then."""
    those = [record for record in view.records if record.step.kind not in _BESIDE]
    for record, following in zip_longest(those, those[1:]):
        step = record.step
        if step.kind is not Kind.STORE or step.digest != lease.digest or record.state is State.RAISED:
            continue
        in_vain = step.op == _LEASE and (following is None or _is_the_same(step, following.step))
        if step.op in _CHANGE and not in_vain:
            yield record
