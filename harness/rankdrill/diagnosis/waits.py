"""The wait-for graph: which ranks wait for which, and which of them wait for ever.

A rank inside collective *s* of a group waits for every member that has not reached *s*. A member that has returned,
raised or died will never come; whoever waits for one that will never come, or sits in a cycle of waits, will never
come either. So most hangs are certain long before any timeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rankdrill.ledger import GROUP_OP, MOST_RANKS, LedgerView, Members, Record, State
from rankdrill.step import NEVER_WAITED, NO_SEQUENCE, Kind, Step

__all__ = ["Position", "Progress", "Wait", "doomed", "name_ranks", "position", "waits"]

_PEER = re.compile(r"\bpeer=(\d+)(?: tag=(\d+))?")
_SEND, _RECV = "send", "recv"
_ANY = -1  # the peer of a receive that takes from anybody

FEW = 8  # ranks that a message lists one by one
Message: TypeAlias = tuple[str, str, int, int]
"""What messages are counted by: ``send`` or ``recv``, the group, the peer's rank in it, the tag."""


@dataclass(frozen=True)
class Position:
    """Where one rank is: ended, or in step `at` if it waits there for others, or running.

    `reached` counts the collectives the rank has entered in each group, `messages` the sends and receives; `groups`
    maps the groups it has used to their members' global ranks. `whole` is False where a part of its ledger was
    overwritten before it was read. `gave_up` says that it has dropped the handle of a message.
    """

    ended: bool
    at: Record | None = None
    reached: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    messages: Mapping[Message, int] = field(default_factory=dict)
    whole: bool = True
    gave_up: bool = False


@dataclass(frozen=True)
class Wait:
    """Rank `rank` waits in `record` for the ranks `missing`, which have not reached it."""

    rank: int
    record: Record
    missing: tuple[int, ...]

    def __str__(self) -> str:
        if not self.missing:
            return f"is in {self.record.step}, which every rank has reached{self.record.step.where}"
        return f"waits in {self.record.step} for {name_ranks(self.missing)}{self.record.step.where}"


def name_ranks(ranks: Iterable[int]) -> str:
    """``rank 2``, ``ranks 0, 1, 3``, in their order; of more than a few, neighbours as ``ranks 0-24, 26``."""
    listed = sorted(ranks)
    parts = [str(rank) for rank in listed] if len(listed) <= FEW else list(_runs(listed))
    return f"rank{'s' if len(listed) > 1 else ''} {', '.join(parts)}"


def _runs(ranks: Sequence[int]) -> Iterable[str]:
    first = 0
    for place, rank in enumerate(ranks):
        if place + 1 == len(ranks) or ranks[place + 1] != rank + 1:
            yield str(rank) if first == place else f"{ranks[first]}-{rank}"
            first = place + 1


class Progress:
    """How far one rank has come, followed look by look: each takes the records that are new or were unfinished."""

    def __init__(self, entered: Callable[[Record], bool] = lambda record: True, ranks: int = MOST_RANKS) -> None:
        self._entered = entered
        self._ranks = ranks  # of the world
        self._reached: dict[str, int] = {}
        self._groups: dict[str, tuple[int, ...]] = {}
        self._members: dict[str, Members] = {}
        self._messages: dict[Message, int] = {}
        self._counted = 0
        self._lost: set[int] = set()
        self._torn: set[int] = set()
        self._whole = True
        self._at: Record | None = None
        self._newest: Record | None = None
        self.next = 0

    def take(self, view: LedgerView) -> None:
        """Take in the records from index `next` on."""
        self._whole = self._whole and not view.dropped
        self._at = None
        end, torn = view.first + len(view.raw), set(view.torn_at)
        self.next = min(torn, default=end)  # another thread may be in the middle of writing it
        for record in view.where(_matters):
            if not _over(record.state):
                self.next = min(self.next, record.index)
            if record.index >= self._counted or record.index in self._torn:
                self._count(record)
            if record.error == NEVER_WAITED and record.index not in self._lost:
                self._lose(record)
            if record.state.open:
                self._at = record
            if record.step.kind is Kind.COLLECTIVE:
                self._newest = record
        self._counted, self._torn = end, torn

    def _count(self, record: Record) -> None:
        step = record.step
        if step.kind is not Kind.COLLECTIVE:
            return  # the rank is inside it
        if step.op == GROUP_OP:
            members = self._members.setdefault(step.target, Members(self._ranks)).take(step.fingerprint)
            if members is not None:
                self._groups[step.target] = members
        elif not self._entered(record):
            return
        elif step.sequence != NO_SEQUENCE:
            self._reached[step.target] = max(self._reached.get(step.target, 0), step.sequence + 1)
        elif step.op in (_SEND, _RECV):
            message = (step.op, step.target, *_peer(step))
            self._messages[message] = self._messages.get(message, 0) + 1

    def _lose(self, record: Record) -> None:
        """A message that was begun will not be ended: its peer may wait for ever, also if the rank goes on."""
        self._lost.add(record.index)
        message = (record.step.op, record.step.target, *_peer(record.step))
        self._messages[message] = self._messages.get(message, 0) - 1

    def position(self, *, ended: bool, stuck: bool = False) -> Position:
        """Where the rank is now; a rank that is inside a step of another kind runs.

        Of a rank known to be `stuck` outside any step, the newest collective it has issued is taken for what it
        waits for: DDP's reducer, say, waits in C++ for a future, which no ledger sees.
        """
        at = self._at
        if at is None and stuck and self._newest is not None and self._newest.state is State.ISSUED:
            at = self._newest
        if ended or (at is not None and at.step.kind is not Kind.COLLECTIVE):
            at = None
        return Position(ended, at, self._reached, self._groups, self._messages, self._whole, bool(self._lost))


def _over(state: State) -> bool:
    return state in (State.ENDED, State.RAISED)


def _matters(kind: Kind, state: State) -> bool:
    return kind is Kind.COLLECTIVE or not _over(state)


def position(view: LedgerView, *, ended: bool, entered: Callable[[Record], bool] = lambda record: True) -> Position:
    """Read a rank's position from its ledger; `entered` says of a record whether the collective was really issued."""
    progress = Progress(entered)
    progress.take(view)
    return progress.position(ended=ended)


def doomed(positions: Sequence[Position]) -> dict[int, Wait]:
    """The ranks that will wait for ever, each with what it waits for; `positions` is by global rank.

    A rank that runs may still come. A waiting rank comes if all whom it waits for come. The least set closed
    under this is who can go on; everybody else who waits is doomed.
    """
    waiting = waits(positions)
    able = {rank for rank, at in enumerate(positions) if not at.ended and rank not in waiting}
    grew = True
    while grew:
        coming = {rank for rank, wait in waiting.items() if rank not in able and set(wait.missing) <= able}
        able |= coming
        grew = bool(coming)
    return {rank: wait for rank, wait in waiting.items() if rank not in able}


def waits(positions: Sequence[Position]) -> dict[int, Wait]:
    """What each rank that waits in a collective waits for; nobody, if all have reached it."""
    return {rank: _wait(rank, at, positions) for rank, at in enumerate(positions) if at.at is not None}


def _wait(rank: int, here: Position, positions: Sequence[Position]) -> Wait:
    assert here.at is not None
    step = here.at.step
    members = _members(step.target, rank, positions)
    if step.sequence == NO_SEQUENCE:
        return Wait(rank, here.at, _behind_in_messages(rank, here, members, positions))
    behind = tuple(
        member
        for member in members
        if member != rank and positions[member].reached.get(step.target, 0) <= step.sequence
    )
    return Wait(rank, here.at, behind)


def _members(group: str, rank: int, positions: Sequence[Position]) -> tuple[int, ...]:
    """The global ranks of `group`, by group rank; where no ledger says so any more, those that have used it."""
    for known in (positions[rank], *positions):
        if group in known.groups:
            return tuple(member for member in known.groups[group] if member < len(positions))
    if all(position.whole for position in positions):
        return tuple(range(len(positions)))
    return tuple(member for member, position in enumerate(positions) if group in position.reached)


def _behind_in_messages(
    rank: int, here: Position, members: tuple[int, ...], positions: Sequence[Position]
) -> tuple[int, ...]:
    """The peer of a send or receive, unless the peer has begun the other half of it."""
    assert here.at is not None
    step = here.at.step
    peer, tag = _peer(step)
    if peer == _ANY or peer >= len(members) or rank not in members:
        return ()
    there = positions[members[peer]]
    if not (here.whole and there.whole):
        return () if not there.ended else (members[peer],)
    mine, theirs = (_SEND, _RECV) if step.op == _SEND else (_RECV, _SEND)
    wanted = here.messages.get((mine, step.target, peer, tag), 0)
    me = members.index(rank)
    begun = there.messages.get((theirs, step.target, me, tag), 0)
    anybody = there.messages.get((theirs, step.target, _ANY, tag), 0)
    return () if begun + anybody >= wanted else (members[peer],)


def _peer(step: Step) -> tuple[int, int]:
    found = _PEER.search(step.fingerprint)
    if found is None:
        tag = re.search(r"\btag=(\d+)", step.fingerprint)
        return _ANY, int(tag[1]) if tag else 0
    return int(found[1]), int(found[2] or 0)
