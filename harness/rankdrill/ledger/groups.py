"""The table of groups behind a ledger's call sites: who is a member of which, known however often the ring wraps."""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankdrill.ledger import format as f
from rankdrill.ledger.members import MOST_RANKS, ranks_in, spell_members, told_in

__all__ = ["Group", "GroupReader", "GroupTable"]

_U64 = struct.Struct("<Q")
# number, index of the next record then, whether its calls go on on a device, label, members or a part of them, commit
_ENTRY = struct.Struct("<QQI76s156sI")
_MEMBERS_BYTES = 156
assert _ENTRY.size == f.GROUP_BYTES


@dataclass(frozen=True, slots=True)
class Group:
    """What a rank wrote down of a group before its first call there: no record before the index `at` speaks of it.

    `number` counts what the rank wrote of groups; `told` are the members' global ranks, by rank in the group, as text:
    ``0-25,30``. `mark` is `ON_DEVICE` where its calls go on, on a device, after they have returned,
    `PARTLY_ON_DEVICE` where those on tensors of a device do, else 0.
    """

    number: int
    at: int
    label: str
    told: str
    mark: int = 0

    def ranks(self, most: int = MOST_RANKS) -> tuple[int, ...]:
        """The first `most` members: a damaged ledger may speak of more than memory holds."""
        return ranks_in(self.told, most)


class GroupTable:
    """Writes groups down, each before its first call; of more than it has room for the newest are kept."""

    def __init__(self, memory: mmap.mmap, start: int, room: int) -> None:
        self._map = memory
        self._start = start
        self._room = room
        self._adding = threading.Lock()

    def add(self, label: str, ranks: Sequence[int], mark: int, at: int) -> None:
        """A group of these global `ranks`, before record `at`."""
        with self._adding:
            (number,) = _U64.unpack_from(self._map, f.GROUPS_OFFSET)
            name = f.fit(label, 76, keep="tail")
            for part in spell_members(ranks, _MEMBERS_BYTES):
                place = self._start + number % self._room * f.GROUP_BYTES
                _ENTRY.pack_into(self._map, place, number, at, mark, name, part.encode(), f.commit_of(number))
                number += 1
                _U64.pack_into(self._map, f.GROUPS_OFFSET, number)


class GroupReader:
    """Reads the groups of a ledger that may still be written; each once."""

    def __init__(self, memory: mmap.mmap, start: int, room: int) -> None:
        self._map = memory
        self._start = start
        self._room = room
        self._next = 0
        self._groups: list[Group] = []
        self._parts: dict[str, dict[int, str]] = {}

    def groups(self, since: int) -> tuple[Group, ...]:
        """Those that were written down from record `since` on, in the order in which the rank came to them."""
        self._groups = [*self._groups, *self._new()][-self._room :]
        return tuple(group for group in self._groups if group.at >= since)

    def _new(self) -> Iterator[Group]:
        (total,) = _U64.unpack_from(self._map, f.GROUPS_OFFSET)
        for number in range(max(self._next, total - self._room), total):
            place = self._start + number % self._room * f.GROUP_BYTES
            raw = self._map[place : place + f.GROUP_BYTES]
            if len(raw) < f.GROUP_BYTES:
                return
            said, at, mark, label, members, commit = _ENTRY.unpack(raw)
            if said != number or commit != f.commit_of(number):
                return
            self._next = number + 1
            told = self._whole(f.text(label), f.text(members))
            if told is not None:
                yield Group(number, at, f.text(label), told, mark)

    def _whole(self, label: str, members: str) -> str | None:
        """All members of a group, once the last of its parts has been read; they stand one behind the other."""
        found = told_in(members)
        if found is None:
            return None
        told, part, count = found
        parts = self._parts.setdefault(label, {})
        if part == 1:
            parts.clear()
        parts[part] = told
        if part < count or len(parts) < count:
            return None
        del self._parts[label]
        return ",".join(parts[number] for number in sorted(parts))
