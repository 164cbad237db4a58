"""Who holds the file locks that processes wait for, as the kernel says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["holders"]

_LOCKS = Path("/proc/locks")
_BLOCKED = "->"


def holders() -> Mapping[int, int]:
    """The process that each process waits for that is blocked in a file lock; nothing where the kernel does not say."""
    found: dict[int, int] = {}
    held_by: dict[str, int] = {}
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        number, *fields = line.split()
        blocked = fields[0] == _BLOCKED
        process = int(fields[4 if blocked else 3])
        if blocked and number in held_by:
            found[process] = held_by[number]
        elif not blocked:
            held_by[number] = process
    return found
