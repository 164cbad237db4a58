"""Reading what lies in files and segments into fresh memory, at the speed of memory.

Fresh memory costs more than the copy into it: the kernel hands it out page by page, zeroed. In pages of 2 MiB that is
next to nothing (64 MB: 24 ms instead of 58, Linux 6, with huge pages on demand, which is most distributions' default).
"""

from __future__ import annotations

import ctypes
import errno
import io
import mmap
import os
import pickle
from collections.abc import Sequence
from typing import Any, Protocol

import numpy

from rankdrill.gathers.wire import FrameError

__all__ = ["Readable", "Section", "fresh", "in_memory", "read_exactly", "unpickle"]

# Below this, huge pages save nothing.
_LARGE_BYTES = 1 << 22


class Readable(Protocol):
    """An unbuffered binary file."""

    def seek(self, position: int, /) -> int:
        """Go to `position`."""

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


class Section(io.RawIOBase):
    """A part of an unbuffered file, as a file of its own; what is read from it is not copied on the way."""

    def __init__(self, file: Readable, place: slice) -> None:
        self._file = file
        self._place = place
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        nbytes = self._place.stop - self._place.start
        position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: nbytes}[whence]
        if position < 0:
            raise OSError(errno.EINVAL, "a position before the beginning")
        self._position = min(position, nbytes)
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        start = self._place.start + self._position
        self._file.seek(start)
        count = _fill(self._file, target[: self._place.stop - start], or_less=True)
        self._position += count
        return count


def in_memory(frame: memoryview) -> Readable:
    """`frame` as an unbuffered file; not `io.BytesIO`, which would copy it."""
    return _Memory(frame)


class _Memory:
    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._position = 0

    def seek(self, position: int, /) -> int:
        self._position = position
        return position

    def readinto(self, buffer: Any, /) -> int:
        part = self._frame[self._position : self._position + len(buffer)]
        buffer[: part.nbytes] = part
        self._position += part.nbytes
        return part.nbytes


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
