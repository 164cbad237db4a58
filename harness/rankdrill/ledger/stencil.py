"""The record of a call that is made again and again: what is the same in all of them laid out once, the rest filled in.

A program's loop makes the same few calls from the same few lines. What such a record says of the op, the group, the
tensors and the call site is bytes that never change; per call there are its index, its number and the time.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from time import monotonic_ns
from typing import Protocol, cast

from rankdrill.ledger import format as f
from rankdrill.ledger.mapped import Mapped
from rankdrill.native import hot
from rankdrill.step import NO_SEQUENCE

__all__ = ["PlainStencil", "Stencil", "Threaded", "stencil"]

# As `format.RECORD`, with what does not change in one piece: one call instead of four. The fields are written in
# order, so the commit mark is the last here, too.
_WHOLE = struct.Struct(f"<QQQQqIH{f.RECORD_KIND.size}siIqI")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
assert _WHOLE.size == f.RECORD_BYTES
_MOST = 0xFFFFFFFF
_HEADER, _RECORD, _TOTAL = f.HEADER_BYTES, f.RECORD_BYTES, f.TOTAL_OFFSET
_END, _STATE, _PATIENCE = f.END_OFFSET, f.STATE_OFFSET, f.PATIENCE_OFFSET
_WAITING, _ENDED = int(f.State.WAITING), int(f.State.ENDED)
_NOBODY, _NO_SEQUENCE = f.NO_MESSAGE, NO_SEQUENCE


class Threaded(Protocol):
    """What says, on each thread, which number the kernel has for it."""

    id: int


class Stencil(Protocol):
    """Writes the records of one such call. Of what has lost its slot to a later record nothing is written."""

    def begin(self, sequence: int) -> int:
        """The call of that number in its group begins; returns its index."""

    def wait(self, index: int, milliseconds: int) -> None:
        """The rank waits in it, to give up after so long; 0 is not known."""

    def end(self, index: int) -> None:
        """It is over."""


class PlainStencil:
    """A `Stencil` in Python, for the ring of `capacity` records in `memory`, which are numbered by `numbers`."""

    __slots__ = ("_capacity", "_kind", "_memory", "_nbytes", "_numbers", "_thread")

    def __init__(
        self, memory: mmap.mmap, capacity: int, numbers: Iterator[int], thread: Threaded, kind: bytes, nbytes: int
    ) -> None:
        self._memory = memory
        self._capacity = capacity
        self._numbers = numbers
        self._thread = thread
        self._kind = kind
        self._nbytes = nbytes

    def begin(self, sequence: int) -> int:
        index, memory = next(self._numbers), self._memory
        _WHOLE.pack_into(
            memory,
            _HEADER + index % self._capacity * _RECORD,
            index,
            monotonic_ns(),
            0,
            self._nbytes,
            sequence,
            self._thread.id,
            0,
            self._kind,
            _NOBODY,
            0,
            _NO_SEQUENCE,
            (index + 1) & _MOST or 1,
        )
        _U64.pack_into(memory, _TOTAL, index + 1)
        return index

    def wait(self, index: int, milliseconds: int) -> None:
        memory, slot = self._memory, _HEADER + index % self._capacity * _RECORD
        if _U64.unpack_from(memory, slot)[0] == index:
            _U32.pack_into(memory, slot + _PATIENCE, milliseconds)
            memory[slot + _STATE] = _WAITING

    def end(self, index: int) -> None:
        memory, slot = self._memory, _HEADER + index % self._capacity * _RECORD
        if _U64.unpack_from(memory, slot)[0] == index:
            _U64.pack_into(memory, slot + _END, monotonic_ns())
            memory[slot + _STATE] = _ENDED


def stencil(
    mapped: Mapped, capacity: int, numbers: Iterator[int], thread: Threaded, kind: bytes, nbytes: int
) -> Stencil:
    """The stencil of that call, in C if there is one."""
    if hot is None:
        return PlainStencil(mapped.memory, capacity, numbers, thread, kind, nbytes)
    return cast(Stencil, hot.Stencil(mapped, capacity, numbers, kind, nbytes))
