"""Reading what lies in files and segments into fresh memory, at the speed of memory."""

from __future__ import annotations

import errno
import io
import os
import pickle
from collections.abc import Sequence
from typing import Any, Protocol

from rankdrill.gathers.encoding.wire import FrameError
from rankdrill.gathers.host.pages import fresh, parts_to_fill

__all__ = ["Readable", "Section", "fill", "in_memory", "read_exactly", "unpickle"]


class Readable(Protocol):
    """An unbuffered binary file."""

    def seek(self, position: int, /) -> int:
        """Go to `position`."""

    def readinto(self, buffer: Any, /) -> int | None:
        """Read at most as much as fits."""


def read_exactly(file: Readable, nbytes: int) -> memoryview:
    """The next `nbytes` bytes, in memory of their own. Raises FrameError where there are fewer."""
    block = fresh(nbytes)
    fill(file, block)
    return block


def fill(file: Readable, block: memoryview) -> None:
    """Read the next bytes into `block`, which is fresh. Raises FrameError where there are fewer."""
    for part in parts_to_fill(block):
        _fill(file, part)


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
        done = 0
        for part in parts_to_fill(memoryview(buffer).cast("B")):
            got = _fill(self._file, part, or_less=True)
            done += got
            if got < part.nbytes:
                break
        return done


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
