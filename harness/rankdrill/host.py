"""This machine and its processes, told from all others: numbers of processes are used again, names of machines too."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["boot_id", "pid_namespace", "started_at"]


def boot_id() -> str:
    """What tells this machine, since it was started, from all others; nothing where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """Where the numbers of processes mean what they mean here: those of a container are its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def started_at(pid: int) -> int:
    """When the process was started, in ticks since the machine was: with its number it tells it from all later ones.

    0 where there is no such process, or only what is left of one that has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
