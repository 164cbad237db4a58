"""The page: memory that the ranks of one machine share, in which each lays down its part of an exchange.

It is a memfd of a fixed size without a name, which only they have, and which the kernel frees with its last user.
First come words of 64 bits: the last exchange that is complete; per rank, the first exchange that it takes no part in;
and twice, for exchanges of even and of odd numbers, per rank the exchange that it has come to and how many bytes it
gave. Then twice the parts, one behind the other, and a tray per rank for payloads that are too large for these.

A rank writes its next part where the last but one was: to come so far it has passed the one between, and so all had
read that one. Of two that come last, one at least sees all others, for each writes that it has come before it looks,
with a `fence` between. It writes that the exchange is complete; who reads that reads parts that were written before.
Where processors keep no order among writes, or among reads, the other fences see to that.
"""

from __future__ import annotations

import mmap
import os
import sys

import torch

from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.host.fence import fence
from rankdrill.gathers.local import segment

__all__ = ["LARGEST_PART_BYTES", "Page"]

LARGEST_PART_BYTES = 1 << 16

# A tray costs memory when it is first used, and keeps it as long as the page is there.
_TRAY_BYTES, _ALL_TRAYS_BYTES = 2 << 20, 64 << 20
_WORD_BYTES = 8


class Page:
    """This rank's view of the page of `size` ranks, of which it is the one at `rank`; takes over `descriptor`."""

    def __init__(self, descriptor: int, rank: int, size: int) -> None:
        self.size = size
        self._rank = rank
        self._descriptor = descriptor
        self._memory: torch.Tensor | None = segment.map_page(descriptor, _bytes_for(size))
        whole = bytes_of(self._memory)
        words = whole[: _words_for(size) * _WORD_BYTES].cast("Q")
        self._complete = words[:1]
        self._left = words[1 : 1 + size]
        rows = [words[1 + size * row : 1 + size * (row + 1)] for row in range(1, 5)]
        self._come, self._given = rows[:2], rows[2:]
        self._parts_at = [_parts_at(size) + turn * size * LARGEST_PART_BYTES for turn in range(2)]
        self._trays_at = _parts_at(size) + 2 * size * LARGEST_PART_BYTES
        self.tray_bytes = _tray_bytes(size)
        self._whole = whole
        self._ready = [0, 0]
        self._tray_ready = 0

    @staticmethod
    def create(size: int) -> int:
        """The descriptor of a new page for `size` ranks. Raises OSError, leaving nothing."""
        descriptor = segment.create_page(_bytes_for(size))
        try:
            os.posix_fallocate(descriptor, 0, _parts_at(size))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @staticmethod
    def leave_unmapped(descriptor: int, rank: int) -> None:
        """Say for `rank`, which has no memory for the page with that descriptor, that it takes part in nothing."""
        os.pwrite(descriptor, (1).to_bytes(_WORD_BYTES, sys.byteorder), (1 + rank) * _WORD_BYTES)

    def come(self, number: int, mine: memoryview) -> bool:
        """Lay down this rank's part of exchange `number`; whether all others have come. Raises OSError."""
        turn, nbytes = number % 2, mine.nbytes
        if nbytes > LARGEST_PART_BYTES:
            raise ValueError(f"{nbytes} bytes for an exchange of at most {LARGEST_PART_BYTES}")
        begin = self._parts_at[turn] + self._rank * nbytes
        if nbytes > self._ready[turn]:
            # Memory that is not there would be known by a signal.
            os.posix_fallocate(self._descriptor, begin, nbytes)
            self._ready[turn] = nbytes
        self._whole[begin : begin + nbytes] = mine
        self._given[turn][self._rank] = nbytes
        fence()
        self._come[turn][self._rank] = number
        fence()
        return self.all_came(number)

    def all_came(self, number: int) -> bool:
        """Whether all ranks have come to exchange `number`, which this one has."""
        return bytes(self._come[number % 2]) == number.to_bytes(_WORD_BYTES, "little") * self.size

    def absent(self, number: int) -> list[int]:
        """The ranks that have not come to exchange `number`."""
        return [rank for rank, came in enumerate(self._come[number % 2]) if came != number]

    def complete(self, number: int) -> None:
        """Say that all have come to exchange `number`, and that it counts."""
        fence()
        self._complete[0] = number

    def is_complete(self, number: int) -> bool:
        """Whether exchange `number` counts."""
        return self._complete[0] >= number

    def leave(self, number: int) -> None:
        """Say that this rank takes no part in exchange `number`, nor in any after it."""
        self._left[self._rank] = number
        fence()

    def left(self, number: int) -> list[int]:
        """The ranks that take no part in exchange `number`, though they may have come to it."""
        if bytes(self._left) == bytes(_WORD_BYTES * self.size):
            return []
        return [rank for rank, first in enumerate(self._left) if 0 < first <= number]

    def given(self, number: int) -> list[int]:
        """How many bytes each rank gave in exchange `number`, which is complete."""
        return list(self._given[number % 2])

    def take(self, number: int, nbytes: int, target: memoryview) -> bool:
        """Copy all parts of exchange `number` to `target`; False unless all gave `nbytes` bytes."""
        turn = number % 2
        fence()
        if bytes(self._given[turn]) != nbytes.to_bytes(_WORD_BYTES, "little") * self.size:
            return False
        begin = self._parts_at[turn]
        target[:] = self._whole[begin : begin + nbytes * self.size]
        return True

    def own_tray(self, nbytes: int) -> memoryview:
        """`nbytes` bytes of this rank's tray, to be filled. Raises OSError where there is no memory."""
        begin = self._trays_at + self._rank * self.tray_bytes
        if nbytes > self._tray_ready:
            os.posix_fallocate(self._descriptor, begin, nbytes)
            self._tray_ready = nbytes
        return self._whole[begin : begin + nbytes]

    def tray(self, rank: int, nbytes: int) -> memoryview:
        """The first `nbytes` bytes of the tray of `rank`."""
        begin = self._trays_at + rank * self.tray_bytes
        return self._whole[begin : begin + nbytes].toreadonly()

    def close(self) -> None:
        """Let go of it; doing it twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _words_for(size: int) -> int:
    return 1 + 5 * size


def _parts_at(size: int) -> int:
    return -(-_words_for(size) * _WORD_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE


def _tray_bytes(size: int) -> int:
    return min(_TRAY_BYTES, _ALL_TRAYS_BYTES // size // mmap.PAGESIZE * mmap.PAGESIZE)


def _bytes_for(size: int) -> int:
    return _parts_at(size) + size * (2 * LARGEST_PART_BYTES + _tray_bytes(size))
