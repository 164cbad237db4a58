"""Reading what lies in files and segments into fresh memory, at the speed of memory.

Fresh memory costs more than the copy into it: the kernel hands it out page by page, zeroed. In pages of 2 MiB that is
next to nothing (64 MB: 24 ms instead of 58, Linux 6, with huge pages on demand, which is most distributions' default).
"""

from __future__ import annotations

import ctypes
import io
import mmap
import pickle
from collections.abc import Sequence
from typing import Any, Protocol

import numpy

from rankdrill.gathers.wire import FrameError

__all__ = ["Readable", "fresh", "read_exactly", "unpickle"]

# Below this, huge pages save nothing.
_LARGE_BYTES = 1 << 22


class Readable(Protocol):
    """An unbuffered binary file."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Read at most as much as fits."""


def fresh(nbytes: int) -> memoryview:
    """New memory, which nobody has written to. Raises MemoryError."""
    block: Any = numpy.empty(nbytes, numpy.uint8)
    return memoryview(block)  # NumPy asks for huge pages itself


def read_exactly(file: Readable, nbytes: int) -> memoryview:
    """The next `nbytes` bytes, in memory of their own. Raises FrameError where there are fewer."""
    block = fresh(nbytes)
    _fill(file, block)
    return block


def unpickle(file: Readable, buffers: Sequence[memoryview]) -> Any:
    """The object whose pickle stream begins where `file` stands, its buffers being `buffers`."""
    return pickle.load(_Stream(file), buffers=buffers)


class _Stream(io.RawIOBase):
    """What the unpickler reads from: it reads large `bytes` straight into their own memory."""

    def __init__(self, file: Readable) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        _prefer_huge_pages(target)
        return _fill(self._file, target, or_less=True)


def _fill(file: Readable, block: memoryview, *, or_less: bool = False) -> int:
    done = 0
    while done < block.nbytes:
        count = file.readinto(block[done:])
        if not count:
            if or_less:
                break
            raise FrameError(f"ends {block.nbytes - done} bytes too soon")
        done += count
    return done


def _prefer_huge_pages(target: memoryview) -> None:
    if target.nbytes < _LARGE_BYTES or _madvise is None:
        return
    start = numpy.frombuffer(target, numpy.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + target.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    _madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)  # advice: it may be refused


_madvise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None
