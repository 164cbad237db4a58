"""The files of a record: in one directory, which hosts and runs may share, two for each process.

``HOST-PID-STARTED.ledger`` holds its steps and ``HOST-PID-STARTED.log`` what else there is to know, a line of JSON for
whatever happens seldom: docs/record.md says which.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["LEDGER", "LOG", "VERSION", "Log", "make_directory", "name_here"]

LEDGER, LOG = ".ledger", ".log"
VERSION = 1
MOST_LINES = 1 << 16  # of one log: a program may make groups without end
_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


def make_directory(directory: Path) -> None:
    """Make `directory`, for this user alone, unless it is there; several ranks may be at it."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def name_here() -> str:
    """What the files of this process are called, without their endings; no two processes of any host have one."""
    host = _UNSAFE.sub("_", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}-{time.time_ns():x}"


class Log:
    """Lines of JSON in a file of its own, each written at once. What cannot be written is left out."""

    def __init__(self, path: Path, **first: Any) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self._lines = 0
        self._writing = threading.Lock()
        self.write(**first)

    def write(self, **told: Any) -> None:
        """One more line, with the time."""
        with self._writing:
            if self._fd < 0 or self._lines >= MOST_LINES:
                return
            self._lines += 1
            line = json.dumps({"at_ns": time.monotonic_ns(), **told}, separators=(",", ":"))
            with suppress(OSError):  # the disk is full, or gone
                os.write(self._fd, line.encode() + b"\n")

    def close(self) -> None:
        with self._writing:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
