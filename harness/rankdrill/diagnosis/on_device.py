"""Calls that go on, on a device, when they have returned to Python: NCCL's.

The ledger has them as ended once they are in the device's queue, and their rank is somewhere in Python, or waits for
the device in something that is no step, ``Tensor.item()`` say. But calls of one group are carried out in their order,
by all of its members. So the one that a member has not come to cannot be over, and if that has come to its end, never
will be.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import combinations

from rankdrill.diagnosis.device_order import out_of_order
from rankdrill.diagnosis.device_queues import MOST_AHEAD
from rankdrill.diagnosis.progress import Position
from rankdrill.diagnosis.waits import Wait, wait_of
from rankdrill.ledger import Record, State
from rankdrill.step import DDP_BUCKET, NO_SEQUENCE, RECV, SEND, Step

__all__ = ["held_on_device", "unmet_on_device"]

_ONE_BY_ONE = frozenset({"send", "recv"})  # others may be joined into one call
CONNECTING_NS = 5_000_000_000  # in which a call that is new to its ranks may be at nothing but connecting them
MOST_PAIRED = 64  # ranks that are looked at two by two


def held_on_device(positions: Sequence[Position], now_ns: int, *, stuck: bool = False) -> list[Position]:
    """`positions` at `now_ns`, in which those that run are in the call that their device cannot get past.

    That is one that another rank will not come to, having ended; if those that run are known to be `stuck`, one that
    another has not come to. Who has just begun such a call, and not come back to Python, runs too: while NCCL connects
    two ranks, at their first message, they are both in a send. So does who is in a collective that all have come to,
    while its device is at what was queued before. Of ranks whose devices hold each other up some may have come to their
    end: these are in such a call like those that run.
    """
    run = {rank for rank in range(len(positions)) if _runs(rank, positions, now_ns)}
    if stuck and (turned := _in_other_orders(positions, run)):
        # Before what a rank has not come to: it may be for this that it has not.
        return [turned.get(rank, here) for rank, here in enumerate(positions)]
    found = [_held(rank, positions, stuck=stuck) if rank in run else here for rank, here in enumerate(positions)]
    for one, other in combinations(sorted(run), 2) if len(run) <= MOST_PAIRED else ():
        pair = found[one], found[other]
        if not any(here.halted for here in pair) and (heads := _both_receive(one, other, pair)):
            found[one] = replace(pair[0], at=heads[0], held_by=other, halted=True)
            found[other] = replace(pair[1], at=heads[1], held_by=one, halted=True)
    turned = _kept_from(positions, found, run) or _in_other_orders(positions, run)
    return [turned.get(rank, here) for rank, here in enumerate(found)]


def _kept_from(positions: Sequence[Position], found: Sequence[Position], run: Set[int]) -> dict[int, Position]:
    """Those halted in `found`, and of those that run who is in a collective that one of them has behind its call."""
    halted = {rank: here for rank, here in enumerate(found) if here.halted}
    kept = {}
    for rank in run - halted.keys():
        at = positions[rank].at
        by = next((each for each in halted if at is not None and _has_behind(positions[each], at.step)), None)
        if at is not None and by is not None:
            kept[rank] = replace(positions[rank], at=at, held_by=by, halted=True)
    return halted | kept


def _has_behind(position: Position, call: Step) -> bool:
    """Whether it is in that collective, and its device, which is halted, elsewhere."""
    return position.at is not None and (position.at.step.target, position.at.step.sequence) == (
        call.target,
        call.sequence,
    )


def _in_other_orders(positions: Sequence[Position], run: Set[int]) -> dict[int, Position]:
    """Of the ranks that run or have ended those that hold each other up, in the calls that they do not get past."""
    waits = out_of_order(positions) if run else {}
    return {
        rank: replace(positions[rank], ended=False, at=wait.record, held_by=wait.missing[0], halted=True)
        for rank, wait in waits.items()
        if rank in run or positions[rank].ended
    }


def unmet_on_device(positions: Sequence[Position]) -> dict[int, Wait]:
    """Of ranks that have all come to their end: of each the first call that others have not come to, or that they have
    queued behind another one.
    """
    everybody = set(range(len(positions)))
    unmet = {rank: unmet[0] for rank in everybody if (unmet := _unmet(rank, positions, everybody))}
    return unmet or out_of_order(positions)


def _runs(rank: int, positions: Sequence[Position], now_ns: int) -> bool:
    here = positions[rank]
    if here.ended or not here.on_device:
        return False
    if here.at is None:
        return True
    if here.at.step.target not in here.on_device:
        return False
    met = here.at.step.sequence != NO_SEQUENCE and not wait_of(rank, here, positions).missing
    return met or now_ns - here.at.begin_ns < CONNECTING_NS


def _held(rank: int, positions: Sequence[Position], *, stuck: bool) -> Position:
    here = positions[rank]
    others = set(range(len(positions))) if stuck else {each for each, at in enumerate(positions) if at.ended}
    unmet = [wait for wait in _unmet(rank, positions, others) if stuck or not _is_the_users(wait.record)]
    if unmet:
        return replace(here, at=unmet[0].record, halted=True)
    return here if stuck else replace(here, at=None)


def _is_the_users(record: Record) -> bool:
    """Whether the user has its handle, and may give it up: nobody waits for it yet. Nor does one ask for DDP's."""
    site = record.step.site
    return record.state is State.ISSUED and not (site is not None and site.via.startswith(DDP_BUCKET))


def _unmet(rank: int, positions: Sequence[Position], others: Set[int]) -> list[Wait]:
    """The calls of `rank` that one of `others` has not come to, in their order."""
    found: list[Wait] = []
    for calls in positions[rank].on_device.values():
        met = False
        for record in reversed(calls):
            if met and record.step.message is None:
                continue  # who has come to a later collective has come to this
            wait = wait_of(rank, replace(positions[rank], at=_begun(record), held_by=None), positions)
            met = met or (not wait.missing and record.step.sequence != NO_SEQUENCE)
            if any(other in others and _tells(positions[other], record.step.target) for other in wait.missing):
                found.append(replace(wait, record=record if record.state is State.ISSUED else wait.record))
    return sorted(found, key=lambda wait: wait.record.index)


def _tells(position: Position, group: str) -> bool:
    """Whether its ledger shows how far it has come in that group: the oldest records may be overwritten."""
    return group in position.reached or (position.whole and not position.lost)


def _begun(record: Record) -> Record:
    return replace(record, state=State.BEGUN)


def _both_receive(one: int, other: int, pair: tuple[Position, Position]) -> tuple[Record, Record] | None:
    """The receives in which two ranks wait for each other, each with what it sends queued behind; None if they do not.

    What two ranks exchange is carried out in order. Whether a send waits for its receive depends on its size.
    """
    for group in pair[0].on_device.keys() & pair[1].on_device.keys():
        mine, theirs = (_exchanged(position, group, peer) for position, peer in zip(pair, (other, one), strict=True))
        for one_, other_ in zip(mine, theirs, strict=False):
            ops = {one_.step.op, other_.step.op}
            if ops == {RECV}:
                return _begun(one_), _begun(other_)
            if ops != {SEND, RECV}:
                break
    return None


def _exchanged(position: Position, group: str, peer: int) -> list[Record]:
    """The messages with `peer`, in their order; none where that is not known, as of some that were joined."""
    calls = position.on_device[group]
    found = [record for record in calls if record.step.message is not None and record.step.message.peer == peer]
    one_by_one = all(record.step.site is not None and record.step.site.via in _ONE_BY_ONE for record in found)
    return found if one_by_one and len(calls) < MOST_AHEAD and not position.lost else []
