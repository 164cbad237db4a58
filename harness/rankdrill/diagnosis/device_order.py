"""Collectives of several groups on a device, in different orders on different ranks: the device never gets past them.

Each group's calls are carried out in their order, by all of its members at once. A call that torch has waited for,
which on a device has all that comes later wait for it, holds up those of other groups, too. So what the ranks have
handed to their devices can be gone through as the devices do, and what is left over stays so, whatever the hosts do.
NCCL says as much of communicators that are used in different orders, also from streams of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.progress import Position
from rankdrill.diagnosis.waits import Wait, hopeless
from rankdrill.ledger import Record, State
from rankdrill.step import NO_SEQUENCE

__all__ = ["out_of_order"]

_Call = tuple[str, int]
"""The group's name, and which of its collectives."""
MOST_RANKS = 64  # more are not gone through
FURTHEST = 16  # calls behind the first that a device may be at as well


def out_of_order(positions: Sequence[Position]) -> dict[int, Wait]:
    """Of ranks whose devices never get past a call which others have queued behind another one, that, and whose device
    holds it up.
    """
    queues = _queues(positions)
    if len(queues) > MOST_RANKS or len({group for queue in queues.values() for group, _ in queue}) < 2:
        return {}
    at = _carried_out(queues, positions)
    heads = {rank: head for rank, queue in queues.items() if (head := _head(queue, at[rank])) is not None}
    waiting = {rank: _wait(rank, queues[rank][head], at, positions) for rank, head in heads.items()}
    waiting = {rank: wait for rank, wait in waiting.items() if wait.missing}
    running = (rank for rank, at in enumerate(positions) if rank not in waiting and not at.ended)
    lost = hopeless(waiting, running)
    found: dict[int, Wait] = {}
    for rank, wait in lost.items():
        call = heads[rank]
        queued_behind = tuple(other for other in wait.missing if other in lost and call in queues.get(other, {}))
        if queued_behind:
            found[rank] = replace(wait, missing=queued_behind)
    return found if any(other in found for wait in found.values() for other in wait.missing) else {}


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
    oldest = {rank: _oldest(queue) for rank, queue in queues.items()}
    done: set[_Call] = set()
    left = {rank: list(queue) for rank, queue in queues.items()}
    at: dict[int, list[_Call]] = {}
    grew = True
    while grew:
        grew = False
        at = {rank: _within_reach(left[rank], queues[rank]) for rank in queues}
        for rank, calls in at.items():
            for call in calls:
                members = positions[rank].groups.get(call[0], (rank,))
                if call not in done and all(_is_at(call, member, at, oldest, done) for member in members):
                    done.add(call)
                    grew = True
        left = {rank: [call for call in calls if call not in done] for rank, calls in left.items()}
    return at


def _oldest(queue: Mapping[_Call, Record]) -> dict[str, int]:
    found: dict[str, int] = {}
    for group, number in queue:
        found.setdefault(group, number)
    return found


def _is_at(
    call: _Call,
    member: int,
    at: Mapping[int, Sequence[_Call]],
    oldest: Mapping[int, Mapping[str, int]],
    done: set[_Call],
) -> bool:
    """Whether the device of `member` is at `call`, or was: of older ones nothing is known any more."""
    group, number = call
    return call in done or call in at.get(member, ()) or number < oldest.get(member, {}).get(group, 0)


def _within_reach(calls: Sequence[_Call], queue: Mapping[_Call, Record]) -> list[_Call]:
    """Those of `calls`, which are left, that wait for no other one of them."""
    found: list[_Call] = []
    ends: list[int] = []
    groups: set[str] = set()
    for call in calls[:FURTHEST]:
        record = queue[call]
        waited_for = any(0 < end <= record.begin_ns for end in ends)
        if not waited_for and call[0] not in groups:
            found.append(call)
        groups.add(call[0])
        if record.state is not State.ISSUED:
            ends.append(record.end_ns)
    return found


def _head(queue: Mapping[_Call, Record], at: Sequence[_Call]) -> _Call | None:
    """The first call that the device does not get past; one that the user has the handle of may be given up."""
    return next((call for call in at if queue[call].state is not State.ISSUED), None)


def _wait(rank: int, record: Record, at: Mapping[int, Sequence[_Call]], positions: Sequence[Position]) -> Wait:
    """For all members whose device is not at it: they have not come to it, or hold it up."""
    call = record.step.target, record.step.sequence
    members = positions[rank].groups.get(call[0], ())
    missing = tuple(member for member in members if member != rank and call not in at.get(member, ()))
    return Wait(rank, replace(record, state=State.BEGUN), missing)
