"""Which keys of stores a rank has set or deleted, and whether what another one waits for is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rankdrill.ledger import Record, State
from rankdrill.step import FILE_LOCKS, JOINS_STORE, PRIVATE_STORE, STORE_MEETS, STORE_WAITS, Kind, Meeting, Step

__all__ = [
    "MOST_KEYS",
    "SETTING",
    "KeyState",
    "Keys",
    "awaits_key",
    "awaits_lock",
    "awaits_meeting",
    "is_there",
    "stores_of",
    "swaps_what_is_there",
]

MOST_KEYS = 1 << 13  # of one rank, the newest; a ledger holds fewer records
SETTING = frozenset({"add", "append", "multi_set", "queue_push", "set"})
"""The ops after which a key is there."""
_MAY_SET = SETTING | {"compare_set"}
KeyState: TypeAlias = tuple[int, bool]
"""When a rank last began to set or to delete a key, on the monotonic clock, and whether it set it."""


class Keys:
    """Those of one rank, by digest, followed record by record; `came` is how often it has come where ranks meet."""

    def __init__(self) -> None:
        self.states: dict[int, KeyState] = {}
        self.came: dict[int, int] = {}

    def take(self, record: Record) -> None:
        """Take in one call of a store."""
        step = record.step
        if step.op in STORE_MEETS:
            self._meet(record)
            return
        if record.state is State.RAISED or (step.op not in _MAY_SET and step.op != "delete_key"):
            return
        if swaps_what_is_there(step):
            return
        self._set(record, there=step.op in _MAY_SET)

    def _meet(self, record: Record) -> None:
        step, meeting = record.step, Meeting.of(record.step)
        if meeting.serves:
            self._set(record, there=record.state is not State.RAISED)
        if meeting.wanted and not (step.op == JOINS_STORE and record.state is State.RAISED):  # it has not connected
            if len(self.came) >= MOST_KEYS:
                del self.came[next(iter(self.came))]
            self.came[step.digest] = self.came.get(step.digest, 0) + 1

    def _set(self, record: Record, *, there: bool) -> None:
        if len(self.states) >= MOST_KEYS:
            del self.states[next(iter(self.states))]
        self.states[record.step.digest] = record.begin_ns, there


def swaps_what_is_there(step: Step) -> bool:
    """Whether `step` sets its key only if that has a value already: where it is not there, it is not there then."""
    return step.op == "compare_set" and bool(step.fingerprint) and not step.fingerprint.startswith("'' to ")


def awaits_key(step: Step) -> bool:
    """Whether a rank that is in `step` waits for a key that another rank may set."""
    return step.kind is Kind.STORE and step.op in STORE_WAITS and step.fingerprint != PRIVATE_STORE


def awaits_meeting(step: Step) -> bool:
    """Whether a rank that is in `step` waits at a store until others have come there, or one that serves it."""
    return step.kind is Kind.STORE and step.op in STORE_MEETS and Meeting.of(step).store != PRIVATE_STORE


def stores_of(steps: Iterable[Step]) -> set[str]:
    """In which stores lies what is awaited."""
    awaited = [step for step in steps if step.kind is Kind.STORE]
    return {Meeting.of(step).store if step.op in STORE_MEETS else step.fingerprint for step in awaited}


def awaits_lock(step: Step) -> bool:
    """Whether a rank that is in `step` waits until a file's lock is free."""
    if step.kind not in (Kind.FILE, Kind.SHM) or step.op not in FILE_LOCKS:
        return False
    return "LOCK_NB" not in step.fingerprint and "LOCK_UN" not in step.fingerprint


def is_there(at: Record, of_ranks: Iterable[Mapping[int, KeyState]]) -> bool:
    """Whether the key that is awaited in `at` has been set: the wait is about to end.

    Of a queue only what was pushed since counts: what was there before somebody else has taken.
    """
    states = [states[at.step.digest] for states in of_ranks if at.step.digest in states]
    if not states:
        return False
    when, was_set = max(states)
    return was_set and (at.step.op != "queue_pop" or when > at.begin_ns)
