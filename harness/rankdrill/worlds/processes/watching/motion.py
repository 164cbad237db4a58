"""Whether a process moves: the time that its threads ran, or wanted to."""

from __future__ import annotations

from pathlib import Path

__all__ = ["seconds_wanted"]


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
