"""What ranks print: kept in a file each, sliced by run, and streamed on request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO, TypeAlias

__all__ = ["OutputFile", "Pumped", "Streamer", "Tell", "log_of", "tell_on"]

Tell: TypeAlias = Callable[[int, str], None]
"""Shows one line of one rank."""


class Pumped(Protocol):
    """What is to be done again and again while ranks run, and a last time, `final`, when they have ended."""

    def pump(self, *, final: bool = False) -> None: ...


KEPT_BYTES = 1 << 20  # of one rank's output in one run; the tail says most


def log_of(directory: Path, rank: int) -> Path:
    """The file for what a rank logs and is to be shown at once; whoever runs on the rank writes whole lines to it."""
    return directory / f"rank-{rank}.log"


@dataclass
class OutputFile:
    """One stream of one rank. `start` is where the current run began, `told` how much of it has been told."""

    path: Path
    start: int = 0
    told: int = 0

    @property
    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def mark(self) -> None:
        """A run begins where the last was told to; what earlier runs printed is given up when it has grown large."""
        if self.told > KEPT_BYTES:
            os.truncate(self.path, 0)  # its rank appends, wherever the end is
            self.told = self.size
        self.start = self.told

    def text(self) -> str:
        """What was printed since the mark, at most its last `KEPT_BYTES`."""
        self.told = size = self.size
        if size == self.start:
            return ""
        first = max(self.start, size - KEPT_BYTES)
        text = self._read(first, size).decode("utf-8", "backslashreplace")
        dropped = first - self.start
        return f"[{dropped} bytes dropped]\n{text}" if dropped else text

    def _read(self, first: int, last: int) -> bytes:
        with open(self.path, "rb") as file:
            return os.pread(file.fileno(), last - first, first)


class Streamer:
    """Tells new whole lines of every rank as they come."""

    def __init__(self, files: Mapping[int, Iterable[OutputFile]], tell: Tell) -> None:
        self._tell = tell
        self._files = [(rank, file, [file.start]) for rank, listed in files.items() for file in listed]

    def pump(self, *, final: bool = False) -> None:
        """Copy what is new; with `final`, also a last line without its newline."""
        for rank, file, position in self._files:
            size = file.size
            if size <= position[0]:
                continue
            new = file._read(position[0], size)
            whole = new if final else new[: new.rfind(b"\n") + 1]
            position[0] += len(whole)
            for line in whole.decode("utf-8", "backslashreplace").splitlines():
                self._tell(rank, line)


def tell_on(out: TextIO) -> Tell:
    """Lines on a terminal, each prefixed with its rank."""

    def tell(rank: int, line: str) -> None:
        out.write(f"[rank {rank}] {line}\n")
        out.flush()

    return tell
