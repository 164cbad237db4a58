"""Consecutive slots of a ledger's ring, as they were copied: of many ranks, an object for each would be too much."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from rankdrill.ledger import format as f

__all__ = ["NOT_WHOLE", "Slots"]

NOT_WHOLE = -1
_CUT_OFF = b"\xff"  # is not to be taken for the zeros that a commit may end in; no kind is of this number
_BETWEEN = f.RECORD_BYTES - f.KIND_OFFSET - 1 - 4
_OUTSIDE = struct.Struct(f"<Q{f.STATE_OFFSET - 8}xBB{_BETWEEN}xI")  # index, state, kind, commit
_STATES, _KINDS = frozenset(map(int, f.State)), len(f.KINDS)


@dataclass(frozen=True, slots=True)
class Slots(Sequence[bytes]):
    """Of `RECORD_BYTES` each, in one piece."""

    joined: bytes = b""

    @classmethod
    def of(cls, parts: Iterable[tuple[bytes, int]]) -> Slots:
        """`parts` of a file, each of so many slots; it may have been cut short within any."""
        return cls(b"".join(part.ljust(count * f.RECORD_BYTES, _CUT_OFF) for part, count in parts))

    def marks(self, first: int) -> array[int]:
        """Of each the kind, times 256, and the state of the record in it; `NOT_WHOLE` where there is none.

        The first slot is that of record `first`; who is whole was written to its end.
        """
        return array(
            "h",
            [
                kind << 8 | state
                if index == number and commit == f.commit_of(number) and state in _STATES and kind < _KINDS
                else NOT_WHOLE
                for number, (index, state, kind, commit) in enumerate(_OUTSIDE.iter_unpack(self.joined), first)
            ],
        )

    def __len__(self) -> int:
        return len(self.joined) // f.RECORD_BYTES

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Slots: ...

    def __getitem__(self, place: int | slice) -> bytes | Slots:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            assert step == 1, place
            return Slots(self.joined[start * f.RECORD_BYTES : max(start, stop) * f.RECORD_BYTES])
        at = range(len(self))[place] * f.RECORD_BYTES
        return self.joined[at : at + f.RECORD_BYTES]

    def __iter__(self) -> Iterator[bytes]:
        return (self.joined[at : at + f.RECORD_BYTES] for at in range(0, len(self.joined), f.RECORD_BYTES))
