"""A key that was there, and was deleted before all had got it; and one that was only swapped for what it never had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankdrill.diagnosis.stores.keys import swaps_what_is_there
from rankdrill.diagnosis.stores.uses import Use
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import DEFAULT_GROUP, Kind, Step

__all__ = ["deleted_early", "deletions", "swapped"]


def deleted_early(
    wait: Wait, waiters: Sequence[int], uses: Sequence[Use], views: Sequence[LedgerView]
) -> tuple[int, Record] | None:
    """Who has deleted the key that was there, and where, if it is one rank, and several wait that never got it, or one
    that came after a collective, which it could not have come before.
    """
    awaited = wait.record.step
    of_key = [use for use in uses if use.record.step.digest == awaited.digest]
    deleted = [(rank, record) for rank, view in enumerate(views) for record in deletions(awaited.digest, view)]
    setters = {use.rank for use in of_key if use.sets}
    if len(deleted) != 1 or not setters:
        return None
    rank, record = deleted[0]
    in_time = _collectives(views[wait.rank], wait.record) <= _collectives(views[rank], record)
    if len(waiters) < 2 and setters != {rank} and in_time:  # one that is late itself, of what is nobody's own
        return None
    had_it = (use.rank for use in of_key if len(waiters) == 1 or not use.sets)
    got_before = not set(waiters).isdisjoint(had_it)
    return deleted[0] if rank not in waiters and not got_before else None


def swapped(
    awaited: Step, waiters: Sequence[int], uses: Sequence[Use], views: Sequence[LedgerView]
) -> tuple[int, Record] | None:
    """Who has called `compare_set` on the key for a value that it never had, if that is one rank, and nobody set it."""
    if any(use.sets and use.record.step.digest == awaited.digest for use in uses):
        return None
    swaps = {
        rank: record
        for rank, view in enumerate(views)
        for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED)
        if record.step.digest == awaited.digest and swaps_what_is_there(record.step)
    }
    alone = len(swaps) == 1 and swaps.keys().isdisjoint(waiters)
    return next(iter(swaps.items())) if alone else None


def _collectives(view: LedgerView, before: Record) -> int:
    """How many of all ranks a rank had come to `before` that."""
    calls = view.where(lambda kind, state: kind is Kind.COLLECTIVE)
    return sum(record.index < before.index and record.step.target == DEFAULT_GROUP for record in calls)


def deletions(digest: int, view: LedgerView) -> Iterator[Record]:
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        if record.step.op == "delete_key" and record.step.digest == digest:
            yield record
