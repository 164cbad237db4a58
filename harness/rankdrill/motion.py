"""Whether a process moves: the time that its threads ran or wanted to, whether they want to now, or are stopped.

Asked of every rank at each look, of hundreds of threads: pathlib would take most of the time that a look takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["COPY_NAME", "is_stopped", "seconds_kept_waiting", "seconds_run", "seconds_wanted", "wants_processor"]

COPY_NAME = "rankdrill-copy"
"""What the kernel calls a copy of a rank, which tries out what the rank would have done and can harm nobody."""
_MOST_BYTES = 1024  # of what the kernel says of one thread
_TICKS = os.sysconf("SC_CLK_TCK")  # a second
_USER_TIME = 11  # its place after the name; the time spent in the kernel follows it


def seconds_wanted(pid: int) -> float:
    """Seconds of processor time that the threads of `pid` have had or waited for; 0 where the kernel does not say.

    Time spent waiting for a processor counts: on a busy machine a rank that could go on may not get to.
    """
    return sum(ran + waited for ran, waited in _scheduled(pid)) / 1e9


def seconds_kept_waiting(pid: int) -> float:
    """Seconds that the threads of `pid` have waited for a processor; 0 where the kernel does not say."""
    return sum(waited for _, waited in _scheduled(pid)) / 1e9


def _scheduled(pid: int) -> Iterator[tuple[int, int]]:
    """Nanoseconds that each thread of `pid` ran, and waited for a processor."""
    for told in _of_threads(pid, "schedstat"):
        ran, waited, *_ = told.split()
        yield int(ran), int(waited)


def seconds_run(pid: int) -> float:
    """Seconds of processor time that `pid` has had, threads that have ended too; 0 where nobody says."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(_MOST_BYTES).rpartition(b")")[2].split()
        return (int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])) / _TICKS
    except (OSError, ValueError, IndexError):
        return 0.0


def wants_processor(pid: int) -> bool:
    """Whether a thread of `pid` runs, or waits for a processor: how long it has waited is told once it has had one."""
    return any(told.rpartition(b")")[2].split()[:1] == [b"R"] for told in _of_threads(pid, "stat"))


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped all of `pid`, and none has had it go on."""
    seen = False
    for told in _of_threads(pid, "stat"):
        seen = True
        if told.rpartition(b")")[2].split()[:1] != [b"T"]:
            return False
    return seen


def _of_threads(pid: int, name: str) -> Iterator[bytes]:
    """What the kernel says, under `name`, of each thread of `pid`, but for those that end meanwhile."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            file = os.open(f"/proc/{pid}/task/{thread}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            told = os.read(file, _MOST_BYTES)
        except OSError:
            continue
        finally:
            os.close(file)
        if told:
            yield told
