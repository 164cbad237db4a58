"""Whether a process moves: the time that its threads ran or wanted to, and whether they want to now."""

from __future__ import annotations

from pathlib import Path

__all__ = ["seconds_wanted", "wants_processor"]


def seconds_wanted(pid: int) -> float:
    """Seconds of processor time that the threads of `pid` have had or waited for; 0 where the kernel does not say.

    Time spent waiting for a processor counts: on a busy machine a rank that could go on may not get to.
    """
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            ran, waited, _ = path.read_text().split()
        except (OSError, ValueError):  # the thread has ended meanwhile
            continue
        total += int(ran) + int(waited)
    return total / 1e9


def wants_processor(pid: int) -> bool:
    """Whether a thread of `pid` runs, or waits for a processor: how long it has waited is told once it has had one."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = path.read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):  # the thread has ended meanwhile
            continue
        if state == "R":
            return True
    return False
