"""What a rank posts for a call that it makes again and again: laid out once, number and checksum filled in each time.

For collectives whose ranks must all bring the same, and nothing by twos: there one look at a neighbour is one number
to compare.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from dataclasses import dataclass
from typing import Protocol, cast

from rankdrill.ledger.board_format import BENT_OFFSET, CALL, FIRST, FIRSTS, HEADER_BYTES, LOOK, LOOK_AT, START
from rankdrill.ledger.mapped import Mapped
from rankdrill.native import hot

__all__ = ["Grid", "PlainPosting", "Posting", "posting"]

_SUMMED = struct.Struct("<QQI")  # what the checksum of who came first is of


@dataclass(frozen=True, slots=True)
class Grid:
    """Where on the board the slots lie of those who meet in one group: `ranks` are its members, `me` is one of them."""

    rings: int
    slots: int
    slot_bytes: int
    group: int
    ranks: tuple[int, ...]
    me: int


class Posting(Protocol):
    """Posts one such call, and looks at what the others have posted."""

    def __call__(self, number: int) -> bool:
        """Whether the group's call of that `number` may go on as it is.

        It may not, nor need it have been posted, where the plan has bent a call, or a rank has posted something else.
        """


class PlainPosting:
    """A `Posting` in Python: `told` and its checksum `told_sum`, which begins with `digest`, on the board in `memory`.

    `in_slots` says what this rank has told in each of its own slots.
    """

    def __init__(
        self,
        memory: mmap.mmap,
        grid: Grid,
        in_slots: list[bytes | None],
        told: bytes,
        told_sum: int,
        digest: int,
    ) -> None:
        self._memory = memory
        self._in_slots = in_slots
        self._told, self._told_sum, self._digest = told, told_sum, digest
        self._size = START.size + len(told)
        self._group, self._slots, self._slot_bytes = grid.group, grid.slots, grid.slot_bytes
        ring = grid.slots * grid.slot_bytes
        rings = {rank: grid.rings + rank * ring for rank in grid.ranks}
        self._rank = grid.ranks[grid.me]
        self._ring = rings[self._rank]
        members = len(grid.ranks)
        beside = {grid.ranks[(grid.me - 1) % members], grid.ranks[(grid.me + 1) % members]} - {self._rank}
        self._beside = tuple(rings[rank] for rank in beside)
        self._rings = rings

    def __call__(self, number: int) -> bool:
        memory, group = self._memory, self._group
        if memory[BENT_OFFSET]:
            return False
        place = (group + number) % self._slots
        slot = place * self._slot_bytes
        start = CALL.pack(self._size, 0, group, number)
        at = self._ring + slot
        head = zlib.crc32(start, self._told_sum).to_bytes(4, "little") + start
        if self._in_slots[place] is self._told:  # a loop makes the same calls again: most of it stands there already
            memory[at : at + START.size] = head
        else:
            self._in_slots[place] = None  # whatever becomes of this rank now
            memory[at : at + self._size] = head + self._told
            self._in_slots[place] = self._told
        first = self._come(number)
        at = slot + LOOK_AT
        for ring in self._beside if first is None else (*self._beside, first):
            theirs, call, digest = LOOK.unpack_from(memory, ring + at)
            if call == number and theirs == group and digest != self._digest:
                return False
        return True

    def _come(self, number: int) -> int | None:
        """Where the slots lie of the member that came first, unless that is this rank."""
        memory, group = self._memory, self._group
        place = HEADER_BYTES + (group + number) % FIRSTS * FIRST.size
        came, call, rank, sum_ = FIRST.unpack_from(memory, place)
        if call == number and came == group and zlib.crc32(memory[place : place + _SUMMED.size]) == sum_:
            return self._rings.get(rank) if rank != self._rank else None
        raw = _SUMMED.pack(group, number, self._rank)
        memory[place : place + FIRST.size] = raw + zlib.crc32(raw).to_bytes(4, "little")
        return None


def posting(
    mapped: Mapped, grid: Grid, in_slots: list[bytes | None], told: bytes, told_sum: int, digest: int
) -> Posting:
    """The posting of that call, in C if there is one."""
    if hot is None:
        return PlainPosting(mapped.memory, grid, in_slots, told, told_sum, digest)
    where = grid.rings, grid.slots, grid.slot_bytes, grid.group, grid.ranks, grid.me
    return cast(Posting, hot.Posting(mapped, *where, in_slots, told, told_sum, digest))
