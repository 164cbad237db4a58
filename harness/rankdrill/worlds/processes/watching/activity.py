"""What a process that takes no step is doing, as the kernel tells: computing, stopped, or in which system call."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rankdrill.motion import seconds_wanted
from rankdrill.worlds.processes.watching.kernel import waits_in
from rankdrill.worlds.rank_outcome import STOPPED_BY

__all__ = ["STOPPED", "activities"]

SAMPLE_S = 0.1  # over which it is seen whether a process computes
SAMPLES = 3  # in all of which it does: who is woken on a busy machine waits for a processor for a while
BUSY = 0.5  # of that time: what wakes now and then does not compute
COMPUTING = "computing"
STOPPED = f"{STOPPED_BY}a signal"
_STATES_OF_STOPPED = frozenset("Tt")
_NAMES: Mapping[str, Mapping[int, str]] = {  # those that programs wait in
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 19: "readv", 20: "writev", 23: "select", 34: "pause", 35: "nanosleep",
        42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
        72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 128: "rt_sigtimedwait", 130: "rt_sigsuspend",
        202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 247: "waitid", 270: "pselect6", 271: "ppoll",
        281: "epoll_pwait", 288: "accept4",
    },
    "aarch64": {
        22: "epoll_pwait", 25: "fcntl", 32: "flock", 63: "read", 64: "write", 65: "readv", 66: "writev", 72: "pselect6",
        73: "ppoll", 82: "fsync", 83: "fdatasync", 95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep",
        133: "rt_sigsuspend", 137: "rt_sigtimedwait", 202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom",
        211: "sendmsg", 212: "recvmsg", 242: "accept4", 260: "wait4",
    },
}  # fmt: skip
_MEANINGS = (
    ("asleep", {"nanosleep", "clock_nanosleep", "pause"}),
    ("waiting for a lock or for another thread", {"futex"}),
    ("waiting for a child process", {"wait4", "waitid"}),
    ("waiting for a file lock", {"flock", "fcntl"}),
    ("waiting for the disk", {"fsync", "fdatasync"}),
    ("waiting for a signal", {"rt_sigtimedwait", "rt_sigsuspend"}),
    ("waiting to read", {"read", "readv", "recvfrom", "recvmsg", "accept", "accept4"}),
    ("waiting to write", {"write", "writev", "sendto", "sendmsg", "connect"}),
    ("waiting for input", {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"}),
)


@dataclass(frozen=True)
class _Look:
    """A process at one time: the seconds its threads have run or wanted to, and the clock."""

    wanted: float
    at: float


def activities(pids: Mapping[int, int]) -> dict[int, str]:
    """In words what each of `pids`, by rank, is doing. One that is gone, or not to be seen, has none.

    ``computing``, ``stopped by a signal``, ``asleep (clock_nanosleep)``. Takes `SAMPLE_S`, and `SAMPLES` times as long
    where somebody computes.
    """
    told: dict[int, str] = {}
    seem_busy = dict(pids)
    for _ in range(SAMPLES):
        if not seem_busy:
            break
        told |= _sampled(seem_busy)
        seem_busy = {rank: pid for rank, pid in seem_busy.items() if told[rank] == COMPUTING}
    return {rank: text for rank, text in told.items() if text}


def _sampled(pids: Mapping[int, int]) -> dict[int, str]:
    before = _looks(pids.values())
    time.sleep(SAMPLE_S)
    after = _looks(pids.values())
    return {rank: _activity(pid, before[pid], after[pid]) for rank, pid in pids.items()}


def _looks(pids: Iterable[int]) -> dict[int, _Look]:
    return {pid: _Look(seconds_wanted(pid), time.monotonic()) for pid in pids}


def _activity(pid: int, before: _Look, after: _Look) -> str:
    state = _state(pid)
    if state in _STATES_OF_STOPPED:
        return STOPPED
    share = (after.wanted - before.wanted) / (after.at - before.at)
    if share >= BUSY or state == "R":  # on a busy machine what is ready to run may not get to
        return COMPUTING
    call = _system_call(pid)
    if state == "D":
        where = ": ".join(filter(None, (call, waits_in(pid))))
        return f"in the kernel, not to be interrupted{f' ({where})' if where else ''}"
    if not call:  # who may not trace it may not ask for it
        return f"waiting in the kernel ({function})" if (function := waits_in(pid)) else ""
    meaning = next((meaning for meaning, calls in _MEANINGS if call in calls), "waiting in a system call")
    return f"{meaning} ({call})"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _system_call(pid: int) -> str:
    """The name of the one that the main thread is in, its number where that has no name here; nothing if unknown."""
    try:
        number = int(Path(f"/proc/{pid}/syscall").read_text().split()[0])
    except (OSError, ValueError, IndexError):  # it runs, or the kernel does not say
        return ""
    return _NAMES.get(os.uname().machine, {}).get(number, f"number {number}") if number >= 0 else ""
