"""The wait-for graph: which ranks wait for which, and which of them wait for ever.

A rank inside collective *s* of a group waits for every member that has not reached *s*; inside a send or receive, for
the other end of the message; inside a receive from anybody, for any one member; inside ``new_group``, for every other
member that has not come to it; inside a store's ``get`` or ``wait``, for any other rank to set the key; inside its
``barrier``, for those that have not come to it; inside a file's lock, for its holder. Who has returned, raised or died
will never come; whoever waits for those that will never come, or sits in a cycle of waits, will never come either. So
most hangs are certain long before any timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from rankdrill.diagnosis.progress import Position, counted_by
from rankdrill.diagnosis.stores.keys import awaits_meeting, is_there
from rankdrill.ledger import Record, members_of
from rankdrill.step import (
    ANYBODY,
    LOCAL_GROUP,
    MAKES_GROUP,
    NO_SEQUENCE,
    RECV,
    SEND,
    Kind,
    Meeting,
    Message,
    Named,
    Step,
)

__all__ = ["Wait", "all_wait_for", "doomed", "hopeless", "name_ranks", "wait_of", "waits"]

FEW = 8  # ranks that a message lists one by one
LONG = 4  # at one distance from each other, that are not listed


@dataclass(frozen=True)
class Wait:
    """Rank `rank` waits in `record` for the ranks `missing`, which have not reached it; if `anyone`, for any one.

    If `queued`, what it waits for has been issued, and lies on a device behind what the other one waits in.
    """

    rank: int
    record: Record
    missing: tuple[int, ...]
    anyone: bool = False
    queued: bool = False

    def __str__(self) -> str:
        step = self.record.step
        if step.kind is Kind.STORE and not awaits_meeting(step):
            set_ = "nobody has set" if self.missing else "has been set"
            return f"waits in {step}, which {set_}{step.where}"
        if not self.missing:
            met = "which every rank has reached" if step.message is None else "the other end of which has come"
            return f"is in {step}, {met}{step.where}"
        one_of = "one of " if self.anyone and len(self.missing) > 1 else ""
        return f"waits in {step} for {one_of}{name_ranks(self.missing)}{step.where}"


def name_ranks(ranks: Iterable[int]) -> str:
    """``rank 2``, ``ranks 0, 1, 3``, in order; of more than a few ``ranks 0-24, 26``, every other ``0, 2 … 24``."""
    listed = sorted(ranks)
    parts = [str(rank) for rank in listed] if len(listed) <= FEW else list(_runs(listed))
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(parts)}"


def _runs(ranks: Sequence[int]) -> Iterable[str]:
    place = 0
    while place < len(ranks):
        first = ranks[place]
        distance = ranks[place + 1] - first if place + 1 < len(ranks) else 1
        end = place + 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == distance:
            end += 1
        if distance > 1 and end - place < LONG:
            end = place + 1
        last = ranks[end - 1]
        apart = f"{first}, {first + distance} … {last}"
        yield str(first) if last == first else apart if distance > 1 else f"{first}-{last}"
        place = end


def doomed(positions: Sequence[Position], *, bent: Set[int] = frozenset()) -> dict[int, Wait]:
    """The ranks that will wait for ever, each with what it waits for; `positions` is by global rank.

    A rank that runs may still come. A waiting rank comes if all whom it waits for come, or any one where that is
    enough. The least set closed under this is who can go on; everybody else who waits is doomed. Ranks that are in
    different collectives of one number have reached it and do not meet: each waits for the others to be in its own. Nor
    do those that make a group of their own under different names.
    So do those, if a plan has `bent` a call of one of these ranks, that are in one of another number, with other sizes
    or another root; and if all others have come to their end, who is left waits for more than they had to give.
    """
    waiting = {rank: _for_its_own_call(wait, positions, bent) for rank, wait in waits(positions).items()}
    return hopeless(waiting, {rank for rank, at in enumerate(positions) if not at.ended and rank not in waiting})


def _for_its_own_call(wait: Wait, positions: Sequence[Position], bent: Set[int]) -> Wait:
    step = wait.record.step
    if wait.missing or step.message is not None or step.sequence == NO_SEQUENCE:
        return wait
    there = ((rank, position.at.step) for rank, position in enumerate(positions) if position.at is not None)
    counted = counted_by(step)  # groups that are made from one have numbers of their own
    elsewhere = (
        rank for rank, other in there if counted_by(other) == counted and _is_another(other, step, bent=bool(bent))
    )
    missing = tuple(elsewhere)
    others = [rank for rank in range(len(positions)) if rank != wait.rank]
    if bent and not missing and all(positions[rank].ended for rank in others):
        missing = tuple(others)
    return replace(wait, missing=missing)


def _is_another(call: Step, than: Step, *, bent: bool) -> bool:
    if bent and call.sequence != NO_SEQUENCE:
        return (call.sequence, call.op, call.fingerprint) != (than.sequence, than.op, than.fingerprint)
    elsewhere = call.op != than.op or (call.op == LOCAL_GROUP and _name(call) != _name(than))
    return call.sequence == than.sequence and elsewhere


def _name(step: Step) -> int:
    """Of a group that its members alone make."""
    return Named.of(step.digest).mark


def hopeless(waiting: Mapping[int, Wait], running: Iterable[int]) -> dict[int, Wait]:
    """Those of `waiting` that will wait for ever, if the ranks `running` may still come and all others have ended."""
    able = set(running)
    grew = True
    while grew:
        coming = {rank for rank, wait in waiting.items() if rank not in able and _comes(wait, able)}
        able |= coming
        grew = bool(coming)
    return {rank: wait for rank, wait in waiting.items() if rank not in able}


def all_wait_for(rank: int, waiting: Mapping[int, Wait]) -> bool:
    """Whether all the others of `waiting` could go on if only `rank` came, one after the other."""
    return not hopeless({other: wait for other, wait in waiting.items() if other != rank}, {rank})


def _comes(wait: Wait, able: Set[int]) -> bool:
    if wait.anyone and wait.missing:
        return not able.isdisjoint(wait.missing)
    return set(wait.missing) <= able


def waits(positions: Sequence[Position]) -> dict[int, Wait]:
    """What each rank that waits in a collective waits for; nobody, if all have reached it."""
    return {rank: wait_of(rank, at, positions) for rank, at in enumerate(positions) if at.at is not None}


def wait_of(rank: int, here: Position, positions: Sequence[Position]) -> Wait:
    """What `rank` waits for, which is in the step of `here`."""
    assert here.at is not None
    step = here.at.step
    if step.op in MAKES_GROUP:
        return _wait_for_members(rank, here.at, positions)
    if awaits_meeting(step):
        return _wait_at_store(rank, here.at, positions)
    if step.kind is Kind.STORE:
        return _wait_for_key(rank, here.awaited or (here.at,), positions)
    if here.held_by is not None:
        return Wait(rank, here.at, (here.held_by,), queued=step.message is not None)
    if step.message is not None and step.message.peer != ANYBODY:
        return _wait_for_message(rank, here.at, step.message, positions)
    members = _members(step.target, rank, positions)
    if step.message is not None:
        return _wait_for_anybody(rank, here.at, step.message.tag, members, positions)
    behind = tuple(member for member in members if member != rank and _is_not_in(step, positions[member]))
    return Wait(rank, here.at, behind)


def _is_not_in(call: Step, there: Position) -> bool:
    return there.reached.get(call.target, 0) <= call.sequence or there.has_left(call)


def _wait_for_members(rank: int, at: Record, positions: Sequence[Position]) -> Wait:
    """For those of the group that is made who have not come to make it; who is to be no member waits for nobody."""
    step = at.step
    members = members_of(step.fingerprint, len(positions)) or ()
    if rank not in members:
        return Wait(rank, at, ())
    behind = (member for member in members if member < len(positions) and member != rank)
    counted = counted_by(step)
    return Wait(rank, at, tuple(one for one in behind if positions[one].reached.get(counted, 0) <= step.sequence))


def _members(group: str, rank: int, positions: Sequence[Position]) -> tuple[int, ...]:
    """The global ranks of `group`, by group rank; where no ledger says so any more, those that have used it."""
    for known in (positions[rank], *positions):
        if group in known.groups:
            return tuple(member for member in known.groups[group] if member < len(positions))
    if all(position.whole for position in positions):
        return tuple(range(len(positions)))
    return tuple(member for member, position in enumerate(positions) if group in position.reached)


def _wait_for_message(rank: int, at: Record, message: Message, positions: Sequence[Position]) -> Wait:
    """For the peer, unless it has begun the other half of the message."""
    step = at.step
    if message.number == NO_SEQUENCE or not 0 <= message.peer < len(positions):
        return Wait(rank, at, ())
    there = positions[message.peer]
    other = RECV if step.op == SEND else SEND
    begun = there.messages.get((other, step.target, rank, message.tag))
    met = begun is not None and begun > message.number
    if begun is None and there.lost and not there.ended:
        met = True  # it may be in what was overwritten
    if other == RECV and there.unknown.get((step.target, message.tag)):
        met = True  # one of those may be for this one
    return Wait(rank, at, () if met else (message.peer,))


def _wait_for_key(rank: int, awaited: Sequence[Record], positions: Sequence[Position]) -> Wait:
    """For anybody else, who may set it, unless somebody has; of several keys for one that nobody has set."""
    for at in awaited:
        if not is_there(at, [position.keys for position in positions]):
            return Wait(rank, at, tuple(other for other in range(len(positions)) if other != rank), anyone=True)
    return Wait(rank, awaited[-1], ())


def _wait_at_store(rank: int, at: Record, positions: Sequence[Position]) -> Wait:
    """For those that have not come, or for as many of them as still have to: all, or one that serves the store."""
    meeting, place = Meeting.of(at.step), at.step.digest
    others = [other for other in range(len(positions)) if other != rank]
    if not meeting.waits_for_all:
        there = is_there(at, [position.keys for position in positions])
        return Wait(rank, at, () if there else tuple(others), anyone=True)
    came = [position.came.get(place, 0) for position in positions]
    mine = came[rank]
    # What a barrier has let through once it lets through at once; a store's server counts anew each time.
    wanted = meeting.wanted * (mine if meeting.serves else 1)
    short = wanted - sum(came)
    if short <= 0 or any(positions[other].lost for other in others):
        return Wait(rank, at, ())
    absent = [other for other in others if came[other] < mine]
    if short > len(absent):  # that many there are not
        return Wait(rank, at, tuple(others))
    return Wait(rank, at, tuple(absent), anyone=short < len(absent))


def _wait_for_anybody(rank: int, at: Record, tag: int, members: Sequence[int], positions: Sequence[Position]) -> Wait:
    here, group = positions[rank], at.step.target
    others = tuple(member for member in members if member != rank)
    if here.unknown.get((group, tag), 0) > 1 or here.lost or rank not in members:
        return Wait(rank, at, ())
    for member in others:
        there = positions[member]
        came = there.messages.get((SEND, group, rank, tag), 0) > here.messages.get((RECV, group, member, tag), 0)
        if came or there.lost:
            return Wait(rank, at, ())
    return Wait(rank, at, others, anyone=True)
