"""Ends what a dead template's ranks had started: all of these are in its session."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

__all__ = ["kill_session"]

_SESSION = 3  # of the fields after the name in /proc/PID/stat


def kill_session(leader: int) -> None:
    """Kill every process of the session that `leader` began; not yet reaped, its number is still its own."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile, or not ours
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[_SESSION]) == leader:
                os.kill(int(path.parent.name), signal.SIGKILL)
