"""How far a rank has come, and where it is, as its ledger tells look by look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rankdrill.diagnosis.device_queues import DeviceQueues
from rankdrill.diagnosis.stores.keys import Keys, KeyState, awaits_key, awaits_lock, awaits_meeting
from rankdrill.ledger import MOST_RANKS, Group, LedgerView, Record, State
from rankdrill.step import (
    DEFAULT_GROUP,
    INIT_GROUP,
    LEAVES_GROUP,
    LOCAL_GROUP,
    MAKES_GROUP,
    NEVER_WAITED,
    NEW_GROUP,
    NO_SEQUENCE,
    Kind,
    Message,
    Step,
)

__all__ = ["Position", "Progress", "counted_by", "position"]

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
    and `held_by` the holder. `awaited` are the keys that it waits for, where it is several, `at` among them; `beside`
    those that its other threads wait for, who say nothing of the rank itself unless it waits for them.
    `on_device` has the newest calls of this run on groups whose calls go on, on a device, when they have returned
    (NCCL's): no record says when these are over. `halted` says that `at` is one of these which the device will not get
    past, whatever the rank itself does meanwhile. `failed` is in each group the newest collective that raised when it
    had been issued: whoever has ended with it is in it no more. `came` is how often it has come to each place of a
    store where ranks meet.
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
    beside: tuple[Record, ...] = ()
    on_device: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    halted: bool = False
    failed: Mapping[str, int] = field(default_factory=dict)
    came: Mapping[int, int] = field(default_factory=dict)

    def has_left(self, call: Step) -> bool:
        """Whether it has ended, and the collective had raised there while others were to come, or were in it."""
        return self.ended and self.failed.get(call.target) == call.sequence


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
        self._introduced = 0  # what was written of groups, and has been looked at
        self._messages: dict[Stream, int] = {}
        self._unknown: dict[int, tuple[str, int]] = {}  # by index: receives whose sender is not known yet
        self._under_way: set[int] = set()  # messages that were not over when last looked at
        self._begun: set[int] = set()  # collectives that the backend may still refuse
        self._failed: dict[str, int] = {}
        self._counted = 0
        self._torn: set[int] = set()
        self._gave_up = False
        self._whole = True
        self._at: Record | None = None
        self._awaited: list[Record] = []  # the keys, where it waits for several
        self._beside: list[Record] = []  # those that its other threads wait for
        self._newest: Record | None = None
        self._on_device = DeviceQueues()
        self.next = 0

    def take(self, view: LedgerView) -> None:
        """Take in the records from index `next` on."""
        self._whole = self._whole and not view.dropped
        self._lost = self._lost or view.first > max(self._counted, self._start)
        self._at = None
        self._awaited, self._beside = [], []
        end, torn = view.first + len(view.raw), set(view.torn_at)
        self.next = min(torn, default=end)  # another thread may be in the middle of writing it
        groups = [group for group in view.groups if group.number >= self._introduced]
        for record in view.where(_matters):
            while groups and groups[0].at <= record.index:
                self._introduce(groups.pop(0))
            if not _over(record.state):
                self.next = min(self.next, record.index)
            if record.index >= self._counted or record.index in self._torn:
                self._count(record)
            elif record.index in self._under_way:
                self._count_again(record)
            elif record.index in self._begun:
                self._count_call(record)
            if record.state.open and self._aside(record):
                self._beside.append(record)
            elif record.state.open:
                self._at = record
                self._awaited.append(record)
            if record.step.kind is Kind.COLLECTIVE:
                self._newest = record
                if record.index >= self._start and self._entered(record):
                    self._on_device.take(record)
                    if record.state is State.RAISED and not _refused(record) and record.step.sequence != NO_SEQUENCE:
                        self._failed[record.step.target] = record.step.sequence
        for group in groups:
            self._introduce(group)
        self._counted, self._torn = end, torn

    def _introduce(self, group: Group) -> None:
        self._introduced = group.number + 1
        self._groups[group.label] = group.ranks(self._ranks)
        if self._on_device.make(group.label, group.mark):
            self._reached.pop(group.label, None)  # it counts anew

    def _aside(self, record: Record) -> bool:
        step = record.step
        waits = awaits_key(step) or awaits_meeting(step) or awaits_lock(step)
        return waits and self._main is not None and record.thread != self._main

    def _count(self, record: Record) -> None:
        step = record.step
        if step.kind is Kind.STORE and record.index >= self._start and self._entered(record):
            self._keys.take(record)
        if step.op in MAKES_GROUP:
            self._count_call(record)
        if step.op == LEAVES_GROUP:
            self._on_device.leave(record)
        if step.kind is not Kind.COLLECTIVE:
            return  # the rank is inside it
        if not self._entered(record):
            return
        if step.sequence != NO_SEQUENCE:
            if record.index >= self._start or step.target != DEFAULT_GROUP:  # whose calls each run counts anew
                self._count_call(record)
        elif step.message is not None and record.index >= self._start:
            self._count_message(record, step.message)

    def _count_call(self, record: Record) -> None:
        """Count it as reached, unless it was refused when it was issued: then it never took place."""
        self._begun.discard(record.index)
        if record.state is State.BEGUN:
            self._begun.add(record.index)
        counted, number = counted_by(record.step), record.step.sequence
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
        # One of those that were under way at once; of another group nobody knows how many there were in runs before.
        among_others = message.number == NO_SEQUENCE and step.is_from_anybody and message.peer >= 0
        if among_others and step.target == DEFAULT_GROUP and not self._lost:
            self._messages[stream] = self._messages.get(stream, 0) + 1
        elif message.number == NO_SEQUENCE:
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
            awaited=_keys(self._awaited),
            beside=tuple(record for record in self._beside if awaits_key(record.step) or awaits_meeting(record.step)),
            on_device=self._on_device.calls,
            failed=self._failed,
            came=self._keys.came,
        )


def _keys(records: Iterable[Record]) -> tuple[Record, ...]:
    return tuple(record for record in records if awaits_key(record.step))


def _waits_for_ranks(step: Step) -> bool:
    makes_group = step.op in MAKES_GROUP and step.sequence != NO_SEQUENCE
    return step.kind is Kind.COLLECTIVE or awaits_key(step) or awaits_meeting(step) or makes_group


def counted_by(step: Step) -> str:
    """What calls are counted by: their group, and apart from its collectives the groups that are made from it."""
    if step.op == INIT_GROUP:
        return INIT_GROUP
    if step.op == LOCAL_GROUP:  # its members alone count it
        return f"groups of {step.target} by {step.fingerprint} alone"
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
