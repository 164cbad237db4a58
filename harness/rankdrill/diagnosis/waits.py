"""The wait-for graph: which ranks wait for which, and which of them wait for ever.

A rank inside collective *s* of a group waits for every member that has not reached *s*; inside a send or receive, for
the other end of the message; inside a receive from anybody, for any one member; inside ``new_group``, for every other
member that has not come to it; inside a store's ``get`` or ``wait``,
for any other rank to set the key; inside a file's lock, for its holder. Who has returned, raised or died will never
come; whoever waits for those that will never come, or sits in a cycle of waits, will never come either. So most hangs
are certain long before any timeout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from rankdrill.diagnosis.stores.keys import Keys, KeyState, awaits_key, awaits_lock, is_there
from rankdrill.ledger import GROUP_OP, MOST_RANKS, LedgerView, Members, Record, State
from rankdrill.step import ANYBODY, NEVER_WAITED, NEW_GROUP, NO_SEQUENCE, RECV, SEND, Kind, Message, Step

__all__ = ["Position", "Progress", "Wait", "doomed", "hopeless", "name_ranks", "position", "waits"]

FEW = 8  # ranks that a message lists one by one
Stream: TypeAlias = tuple[str, str, int, int]
"""What messages are counted by: ``send`` or ``recv``, the group, the peer's global rank, the tag."""


@dataclass(frozen=True)
class Position:
    """Where one rank is: ended, or in step `at` if it waits there for others, or running.

    `reached` counts the collectives the rank has entered in each group, `messages` the sends and receives; `unknown`
    counts, by group and tag, the receives of which nobody knows whose message they took, or will. `groups` maps the
    groups it has used to their members' global ranks. `whole` is False where a part of its ledger was overwritten
    before it was read, `lost` True where that was written in this run. `gave_up`
    says that it has dropped the handle of a message. `keys` are those of stores that it has set or deleted. `locking`
    is the file lock that it waits for, if it does, and who holds that is not known yet; once it is, `at` is that step
    and `held_by` the holder. `awaited` are the keys that it waits for, where it is several, `at` among them.
    """

    ended: bool
    at: Record | None = None
    reached: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    messages: Mapping[Stream, int] = field(default_factory=dict)
    whole: bool = True
    unknown: Mapping[tuple[str, int], int] = field(default_factory=dict)
    lost: bool = False
    gave_up: bool = False
    keys: Mapping[int, KeyState] = field(default_factory=dict)
    locking: Record | None = None
    held_by: int | None = None
    awaited: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Wait:
    """Rank `rank` waits in `record` for the ranks `missing`, which have not reached it; if `anyone`, for any one."""

    rank: int
    record: Record
    missing: tuple[int, ...]
    anyone: bool = False

    def __str__(self) -> str:
        step = self.record.step
        if step.kind is Kind.STORE:
            set_ = "nobody has set" if self.missing else "has been set"
            return f"waits in {step}, which {set_}{step.where}"
        if not self.missing:
            met = "which every rank has reached" if step.message is None else "the other end of which has come"
            return f"is in {step}, {met}{step.where}"
        one_of = "one of " if self.anyone and len(self.missing) > 1 else ""
        return f"waits in {step} for {one_of}{name_ranks(self.missing)}{step.where}"


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

    def __init__(
        self,
        entered: Callable[[Record], bool] = lambda record: True,
        ranks: int = MOST_RANKS,
        start: int = 0,
        main: int | None = None,
    ) -> None:
        self._entered = entered
        self._main = main  # the thread that bodies run in; of others a store's or a lock's wait says nothing
        self._keys = Keys()
        self._ranks = ranks  # of the world
        self._start = start  # of this run: what was sent before has been received
        self._lost = False  # a part of what was written in this run
        self._reached: dict[str, int] = {}
        self._groups: dict[str, tuple[int, ...]] = {}
        self._members: dict[str, Members] = {}
        self._messages: dict[Stream, int] = {}
        self._unknown: dict[int, tuple[str, int]] = {}  # by index: receives whose sender is not known yet
        self._under_way: set[int] = set()  # messages that were not over when last looked at
        self._begun: set[int] = set()  # collectives that the backend may still refuse
        self._counted = 0
        self._torn: set[int] = set()
        self._gave_up = False
        self._whole = True
        self._at: Record | None = None
        self._awaited: list[Record] = []  # the keys, where it waits for several
        self._newest: Record | None = None
        self.next = 0

    def take(self, view: LedgerView) -> None:
        """Take in the records from index `next` on."""
        self._whole = self._whole and not view.dropped
        self._lost = self._lost or view.first > max(self._counted, self._start)
        self._at = None
        self._awaited = []
        end, torn = view.first + len(view.raw), set(view.torn_at)
        self.next = min(torn, default=end)  # another thread may be in the middle of writing it
        for record in view.where(_matters):
            if not _over(record.state):
                self.next = min(self.next, record.index)
            if record.index >= self._counted or record.index in self._torn:
                self._count(record)
            elif record.index in self._under_way:
                self._count_again(record)
            elif record.index in self._begun:
                self._count_call(record)
            if record.state.open and not self._aside(record):
                self._at = record
                self._awaited.append(record)
            if record.step.kind is Kind.COLLECTIVE:
                self._newest = record
        self._counted, self._torn = end, torn

    def _aside(self, record: Record) -> bool:
        waits = awaits_key(record.step) or awaits_lock(record.step)
        return waits and self._main is not None and record.thread != self._main

    def _count(self, record: Record) -> None:
        step = record.step
        if step.kind is Kind.STORE and record.index >= self._start and self._entered(record):
            self._keys.take(record)
        if step.op == NEW_GROUP:
            self._count_call(record)
        if step.kind is not Kind.COLLECTIVE:
            return  # the rank is inside it
        if step.op == GROUP_OP:
            members = self._members.setdefault(step.target, Members(self._ranks)).take(step.fingerprint)
            if members is not None:
                self._groups[step.target] = members
        elif not self._entered(record):
            return
        elif step.sequence != NO_SEQUENCE:
            self._count_call(record)
        elif step.message is not None and record.index >= self._start:
            self._count_message(record, step.message)

    def _count_call(self, record: Record) -> None:
        """Count it as reached, unless it was refused when it was issued: then it never took place."""
        self._begun.discard(record.index)
        if record.state is State.BEGUN:
            self._begun.add(record.index)
        counted, number = _counted(record.step), record.step.sequence
        if not _refused(record):
            self._reached[counted] = max(self._reached.get(counted, 0), number + 1)
        elif self._reached.get(counted) == number + 1:
            self._reached[counted] = number

    def _count_message(self, record: Record, message: Message) -> None:
        step = record.step
        stream = step.op, step.target, message.peer, message.tag
        if not _over(record.state):
            self._under_way.add(record.index)
        if record.state is State.RAISED:
            self._gave_up = self._gave_up or record.error == NEVER_WAITED
            return  # it was refused, or given up: nobody will meet it
        if message.number == NO_SEQUENCE:
            self._unknown[record.index] = step.target, message.tag
        else:
            self._messages[stream] = max(self._messages.get(stream, 0), message.number + 1)

    def _count_again(self, record: Record) -> None:
        """Of a message that was counted before it was over: it may have been given up, or its sender be known."""
        message = record.step.message
        if message is None or not _over(record.state):
            return
        self._under_way.discard(record.index)
        self._unknown.pop(record.index, None)
        stream = record.step.op, record.step.target, message.peer, message.tag
        if record.state is State.RAISED and self._messages.get(stream) == message.number + 1:
            self._messages[stream] = message.number
        self._count_message(record, message)

    def position(self, *, ended: bool, stuck: bool = False) -> Position:
        """Where the rank is now; a rank that is inside a step of another kind runs.

        Of a rank known to be `stuck` outside any step, the newest collective it has issued is taken for what it
        waits for: DDP's reducer, say, waits in C++ for a future, which no ledger sees.
        """
        at = self._at
        if at is None and stuck and self._newest is not None and self._newest.state is State.ISSUED:
            at = self._newest
        locking = at if at is not None and not ended and awaits_lock(at.step) else None
        if ended or (at is not None and not _waits_for_ranks(at.step)):
            at = None
        unknown = Counter(self._unknown.values())
        return Position(
            ended,
            at,
            self._reached,
            self._groups,
            self._messages,
            self._whole,
            unknown,
            self._lost,
            self._gave_up,
            self._keys.states,
            locking,
            awaited=tuple(record for record in self._awaited if awaits_key(record.step)),
        )


def _waits_for_ranks(step: Step) -> bool:
    return step.kind is Kind.COLLECTIVE or awaits_key(step) or (step.op == NEW_GROUP and step.sequence != NO_SEQUENCE)


def _counted(step: Step) -> str:
    """What calls are counted by: their group, and apart from its collectives the groups that are made from it."""
    return f"groups of {step.target}" if step.op == NEW_GROUP else step.target


def _refused(record: Record) -> bool:
    # Whoever waits writes down first how long for.
    return record.state is State.RAISED and not record.patience_ms


def _over(state: State) -> bool:
    return state in (State.ENDED, State.RAISED)


def _matters(kind: Kind, state: State) -> bool:
    return kind in (Kind.COLLECTIVE, Kind.STORE, Kind.GROUP) or not _over(state)


def position(view: LedgerView, *, ended: bool, entered: Callable[[Record], bool] = lambda record: True) -> Position:
    """Read a rank's position from its ledger; `entered` says of a record whether the collective was really issued."""
    progress = Progress(entered)
    progress.take(view)
    return progress.position(ended=ended)


def doomed(positions: Sequence[Position]) -> dict[int, Wait]:
    """The ranks that will wait for ever, each with what it waits for; `positions` is by global rank.

    A rank that runs may still come. A waiting rank comes if all whom it waits for come, or any one where that is
    enough. The least set closed under this is who can go on; everybody else who waits is doomed.
    """
    waiting = waits(positions)
    return hopeless(waiting, {rank for rank, at in enumerate(positions) if not at.ended and rank not in waiting})


def hopeless(waiting: Mapping[int, Wait], running: Iterable[int]) -> dict[int, Wait]:
    """Those of `waiting` that will wait for ever, if the ranks `running` may still come and all others have ended."""
    able = set(running)
    grew = True
    while grew:
        coming = {rank for rank, wait in waiting.items() if rank not in able and _comes(wait, able)}
        able |= coming
        grew = bool(coming)
    return {rank: wait for rank, wait in waiting.items() if rank not in able}


def _comes(wait: Wait, able: Set[int]) -> bool:
    if wait.anyone and wait.missing:
        return not able.isdisjoint(wait.missing)
    return set(wait.missing) <= able


def waits(positions: Sequence[Position]) -> dict[int, Wait]:
    """What each rank that waits in a collective waits for; nobody, if all have reached it."""
    return {rank: _wait(rank, at, positions) for rank, at in enumerate(positions) if at.at is not None}


def _wait(rank: int, here: Position, positions: Sequence[Position]) -> Wait:
    assert here.at is not None
    step = here.at.step
    if step.op == NEW_GROUP:
        return _wait_for_members(rank, here.at, positions)
    if step.kind is Kind.STORE:
        return _wait_for_key(rank, here.awaited or (here.at,), positions)
    if here.held_by is not None:
        return Wait(rank, here.at, (here.held_by,))
    if step.message is not None and step.message.peer != ANYBODY:
        return _wait_for_message(rank, here.at, step.message, positions)
    members = _members(step.target, rank, positions)
    if step.message is not None:
        return _wait_for_anybody(rank, here.at, step.message.tag, members, positions)
    behind = tuple(
        member
        for member in members
        if member != rank and positions[member].reached.get(step.target, 0) <= step.sequence
    )
    return Wait(rank, here.at, behind)


def _wait_for_members(rank: int, at: Record, positions: Sequence[Position]) -> Wait:
    """For those of the group that is made who have not come to make it; who is to be no member waits for nobody."""
    step = at.step
    members = Members(len(positions)).take(step.fingerprint) or ()
    if rank not in members:
        return Wait(rank, at, ())
    behind = (member for member in members if member < len(positions) and member != rank)
    counted = _counted(step)
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
