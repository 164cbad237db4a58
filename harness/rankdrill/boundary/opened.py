"""File objects whose raw reads and writes are steps; above the raw file they are those that `open` makes."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable
from typing import Any

from rankdrill.boundary.crossing import Boundary
from rankdrill.step import Kind, Step

__all__ = ["DrilledFileIO", "compose", "content_digest", "flags_of", "is_plain"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MOST_TOLD_APART = 1 << 16  # bytes of one write
_FLAGS = {"r": os.O_RDONLY, "w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}


class DrilledFileIO(io.FileIO):
    """A raw file whose reads and writes are steps."""

    def watch(self, boundary: Boundary, kind: Kind | None, path: str) -> None:
        """Make reads and writes steps of `boundary`; without a kind, not. To be called before the file is used."""
        self._boundary = boundary
        self._kind = kind
        self._path = path

    def write(self, data: Any, /) -> int:
        if not self._steps:
            return super().write(data)
        return int(self._cross("write", memoryview(data).nbytes, super().write, data))

    def readinto(self, buffer: Any, /) -> int | None:
        if not self._steps:
            return super().readinto(buffer)
        read: int | None = self._cross("read", memoryview(buffer).nbytes, super().readinto, buffer)
        return read

    def readall(self) -> bytes:
        if not self._steps:
            return super().readall()
        read: bytes = self._cross("read", 0, super().readall)
        return read

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        if not self._steps:
            return super().read(size)
        read: bytes = self._cross("read", size, lambda: super(DrilledFileIO, self).read(size))
        return read

    @property
    def _steps(self) -> bool:
        return self._kind is not None and self._boundary.open

    def _cross(self, op: str, nbytes: int, real: Callable[..., Any], *data: Any) -> Any:
        assert self._kind is not None
        step = Step(self._kind, op, self._path, nbytes=nbytes, digest=content_digest(data[0]) if data else 0)
        args = {"fd": self.fileno(), **({"data": data[0]} if data else {})}
        return self._boundary.cross(step, args, lambda call: real(call.args["data"]) if data else real())


def content_digest(data: Any) -> int:
    """What tells short contents apart; 0 of those that are long."""
    view = memoryview(data)
    return zlib.crc32(view) if view.nbytes <= MOST_TOLD_APART and view.c_contiguous else 0


def is_plain(mode: Any, buffering: int, encoding: str | None, errors: str | None, newline: str | None) -> bool:
    """Whether `compose` can do this as `open` would; everything else, errors included, is left to `open`."""
    if not isinstance(mode, str) or not mode or len(set(mode)) != len(mode) or set(mode) - set("rwxabt+"):
        return False
    if sum(mode.count(letter) for letter in "rwxa") != 1 or {"b", "t"} <= set(mode):
        return False
    if "b" in mode:
        return encoding is None and errors is None and newline is None and buffering != 1
    return buffering != 0


def flags_of(mode: str) -> int:
    """The flags of open(2) for a mode of `open`."""
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if "r" in mode else os.O_WRONLY
    return access | next(flags for letter, flags in _FLAGS.items() if letter in mode)


def compose(
    file: Any,
    mode: str,
    buffering: int,
    text: tuple[str | None, str | None, str | None],
    closefd: bool,
    opener: Any = None,
) -> tuple[DrilledFileIO, Any]:
    """Open `file` as `open` does (its documented layers); returns the raw file and what `open` would return.

    `text` is encoding, errors and newline.
    """
    named = file if isinstance(file, int) else os.fspath(file)
    raw = DrilledFileIO(named, mode.replace("b", "").replace("t", ""), closefd, opener)
    if buffering == 0:
        return raw, raw
    try:
        line_buffering = buffering == 1 or (buffering < 0 and raw.isatty())
        size = buffering if buffering > 1 else max(getattr(raw, "_blksize", 0), io.DEFAULT_BUFFER_SIZE)
        layers = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        buffered = layers(raw, size)
        if "b" in mode:
            return raw, buffered
        encoding, errors, newline = text
        wrapped = io.TextIOWrapper(buffered, io.text_encoding(encoding), errors, newline, line_buffering)
        wrapped.mode = mode  # type: ignore[misc]
        return raw, wrapped
    except BaseException:
        raw.close()
        raise
