"""Collectives of several groups on a device, in different orders on different ranks: the device never gets past them.

Each group's calls are carried out in their order, by all of its members at once. A call that torch has waited for,
which on a device has all that comes later wait for it, holds up those of other groups, too. So what the ranks have
handed to their devices can be gone through as the devices do, and what is left over stays so, whatever the hosts do.
NCCL says as much of communicators that are used in different orders, also from streams of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from rankdrill.diagnosis.deadlock import circle_in
from rankdrill.diagnosis.progress import Position
from rankdrill.diagnosis.waits import Wait, hopeless
from rankdrill.ledger import Record, State
from rankdrill.step import NO_SEQUENCE

__all__ = ["out_of_order"]

_Call = tuple[str, int]
"""The group's name, and which of its collectives."""
MOST_RANKS = 64  # more are not gone through


def out_of_order(positions: Sequence[Position]) -> dict[int, Wait]:
    """Of ranks whose devices never get past a call which others have queued behind another one, that, and whose device
    holds it up.
    """
    queues = _queues(positions)
    if len(queues) > MOST_RANKS or len({group for queue in queues.values() for group, _ in queue}) < 2:
        return {}
    at = _carried_out(queues, positions)
    heads = {rank: head for rank, queue in queues.items() if (head := _head(queue, at[rank])) is not None}
    waiting = {rank: _wait(rank, queues[rank][head], at, queues, positions) for rank, head in heads.items()}
    waiting = {rank: wait for rank, wait in waiting.items() if wait.missing}
    running = (rank for rank, at in enumerate(positions) if rank not in waiting and not at.ended)
    lost = hopeless(waiting, running)
    if any(other not in lost and not positions[other].ended for wait in lost.values() for other in wait.missing):
        return {}  # who is still to come may say which of two orders is the odd one
    found: dict[int, Wait] = {}
    for rank, wait in lost.items():
        call = heads[rank]
        queued_behind = tuple(other for other in wait.missing if other in lost and call in queues.get(other, {}))
        if queued_behind:
            found[rank] = replace(wait, missing=queued_behind)
    return found if circle_in(found) else {}


def _queues(positions: Sequence[Position]) -> dict[int, dict[_Call, Record]]:
    """By rank what it has handed to its device, in its order."""
    found = {}
    for rank, position in enumerate(positions):
        records = [record for calls in position.on_device.values() for record in calls]
        records.sort(key=lambda record: record.index)
        calls = [record for record in records if record.step.sequence != NO_SEQUENCE]
        if calls:
            found[rank] = {(record.step.target, record.step.sequence): record for record in calls}
    return found


def _carried_out(queues: Mapping[int, Mapping[_Call, Record]], positions: Sequence[Position]) -> dict[int, list[_Call]]:
    """The calls that the devices are at in the end, were nothing else handed to them."""
    done: set[_Call] = set()
    left = {rank: list(queue) for rank, queue in queues.items()}
    at = {rank: _within_reach(calls, queues[rank]) for rank, calls in left.items()}
    moved = set(queues)
    while moved:
        fresh = {
            call
            for rank in moved
            for call in at[rank]
            if all(_has_come(call, member, at, queues, positions) for member in _members(call, rank, positions))
        }
        done |= fresh
        moved = {rank for rank, calls in at.items() if not fresh.isdisjoint(calls)}
        for rank in moved:
            calls = left[rank]
            while calls and calls[0] in done:
                calls.pop(0)
            at[rank] = _within_reach((call for call in calls if call not in done), queues[rank])
    return at


def _members(call: _Call, rank: int, positions: Sequence[Position]) -> tuple[int, ...]:
    return positions[rank].groups.get(call[0], (rank,))


def _has_come(
    call: _Call,
    member: int,
    at: Mapping[int, Sequence[_Call]],
    queues: Mapping[int, Mapping[_Call, Record]],
    positions: Sequence[Position],
) -> bool:
    """Whether the device of `member` is at `call`, or was, for all that is known: it may have left the group."""
    if call in queues.get(member, {}):
        return call in at[member]
    there = positions[member]
    return there.reached.get(call[0], 0) > call[1] or there.lost or not there.whole


def _within_reach(calls: Iterable[_Call], queue: Mapping[_Call, Record]) -> list[_Call]:
    """Those of `calls`, which are left, in their order, that wait for no other one of them."""
    found: list[_Call] = []
    groups: set[str] = set()
    first_end = inf
    for call in calls:
        record = queue[call]
        if record.begin_ns >= first_end:
            break  # so do all behind it
        if call[0] not in groups:
            found.append(call)
            groups.add(call[0])
        if record.state is not State.ISSUED and record.end_ns:
            first_end = min(first_end, record.end_ns)
    return found


def _head(queue: Mapping[_Call, Record], at: Sequence[_Call]) -> _Call | None:
    """The first call that the device does not get past; one that the user has the handle of may be given up."""
    return next((call for call in at if queue[call].state is not State.ISSUED), None)


def _wait(
    rank: int,
    record: Record,
    at: Mapping[int, Sequence[_Call]],
    queues: Mapping[int, Mapping[_Call, Record]],
    positions: Sequence[Position],
) -> Wait:
    """For all members whose device is not at it: they have not come to it, or hold it up."""
    call = record.step.target, record.step.sequence
    members = positions[rank].groups.get(call[0], ())
    missing = tuple(m for m in members if m != rank and not _has_come(call, m, at, queues, positions))
    return Wait(rank, replace(record, state=State.BEGUN), missing)
