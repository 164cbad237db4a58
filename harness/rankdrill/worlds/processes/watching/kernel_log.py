"""The kernel's log: which processes it killed for want of memory. Its counters tell only how many."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

__all__ = ["KernelLog"]

LOG = Path("/dev/kmsg")
MOST_RECORDS = 10_000  # read at once: others may write as fast as one reads
_RECORD_BYTES = 1 << 13  # the kernel gives one record a read, and none longer
_KILLED = re.compile(rb"(?P<where>Memory cgroup out|Out) of memory(?: \([^)]*\))?: Killed process (?P<pid>\d+) ")
_FIRST_NAMESPACE = "pid:[4026531836]"  # whose process numbers the log has; the number is fixed in the kernel


class KernelLog:
    """What comes into the kernel's log from now on, where that may be read, and its process numbers are ours."""

    def __init__(self, path: Path = LOG) -> None:
        self._fd = -1
        if not _numbers_are_ours():
            return
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # none in most containers; elsewhere it may be root's alone
            return
        self.skip()

    def skip(self) -> None:
        """Leave out what is there so far."""
        if self._fd >= 0:
            os.lseek(self._fd, 0, os.SEEK_END)

    def killed_for_memory(self) -> dict[int, bool]:
        """The processes that the kernel killed since; of each whether all the machine's memory had run out.

        Otherwise it was that of a control group.
        """
        found: dict[int, bool] = {}
        for _ in range(MOST_RECORDS if self._fd >= 0 else 0):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:  # what came next has been overwritten meanwhile
                continue
            except OSError:
                break
            if not record:  # of a file, which the tests put in its place
                break
            for killed in _KILLED.finditer(record):
                found[int(killed["pid"])] = killed["where"] == b"Out"
        return found

    def close(self) -> None:
        """Read no more."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


@cache
def _numbers_are_ours() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE
    except OSError:
        return False
