"""Whether ranks that are in no step will never do anything again: asleep for good, with nobody to wake them.

A thread that waits without a timeout for an event, a queue, a future or a lock is woken by another Python thread of its
process, and by nobody else. Where a process has none that could, no child, and no handler for a signal, say a timer's,
it sleeps for good. That is asked of a rank only once it has not moved for a while, and seldom, and only where the
kernel says that it waits so: the signal that asks for its stacks may wake it from anything else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from rankdrill.diagnosis.held_locks import held_lock, wants_a_lock
from rankdrill.motion import seconds_wanted
from rankdrill.worlds.dumps import threads_in
from rankdrill.worlds.processes.client import RankHandle
from rankdrill.worlds.processes.streams import ASKED_BY
from rankdrill.worlds.processes.watching.outside import another_thread_may_act, has_children
from rankdrill.worlds.processes.watching.stacks import count_threads

__all__ = ["Sleepers"]

STILL_S = 0.5  # after which a rank is asked; what C++ does for it, and then wakes it, takes less
MORE = 4  # times as long until it is asked again
LOOKS, LOOK_S = 20, 0.005  # whether it waits again, once it has been asked
IDLE_SHARE = 0.1  # of the time between two looks; who ran for less did nothing but wait
_FUTEX = {"x86_64": 202, "aarch64": 98}
_TIMEOUT = 3  # its place among the arguments of that system call
_NO_ALARMS = frozenset(
    {
        *(signal.SIGINT, ASKED_BY, signal.SIGWINCH),
        *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV),
    }
)
"""Signals that every rank handles: those by which it is asked, interrupted, or dies."""


class Sleepers:
    """Looks at ranks that are in no step again and again; `stacks` asks some of them for their stacks."""

    def __init__(self, stacks: Callable[[Collection[RankHandle]], Mapping[int, str]]) -> None:
        self._stacks = stacks
        self._ran: dict[int, float] = {}
        self._looked = self._still_since = 0.0
        self._ask_after = STILL_S

    def are_asleep(self, ranks: Mapping[int, RankHandle], waiting: Mapping[int, int]) -> bool:
        """Whether all of `ranks`, at least one, sleep for good: certain if so.

        `waiting` says of how many of a rank's threads it is known that they wait for other ranks for ever.
        """
        if not self._still(ranks) or time.monotonic() - self._still_since < self._ask_after:
            return False
        self._ask_after *= MORE
        pids = [handle.pid for handle in ranks.values() if handle.pid is not None]
        if len(pids) < len(ranks) or another_thread_may_act() or any(map(_may_be_woken, pids)):
            return False
        found = self._stacks(ranks.values())
        return all(_sleeps(found.get(rank, ""), waiting.get(rank, 0)) for rank in ranks) and all(map(_sleeps_on, pids))

    def _still(self, ranks: Mapping[int, RankHandle]) -> bool:
        """Whether they have not moved since the last look, at just these."""
        now, wanted = time.monotonic(), {rank: seconds_wanted(handle.pid or 0) for rank, handle in ranks.items()}
        allowed = IDLE_SHARE * (now - self._looked)
        still = wanted.keys() == self._ran.keys() and all(wanted[rank] - self._ran[rank] <= allowed for rank in wanted)
        self._looked, self._ran = now, wanted
        if not still:
            self._still_since, self._ask_after = now, STILL_S
        return still and bool(ranks)


def _may_be_woken(pid: int) -> bool:
    """Whether somebody may wake it but its own Python threads, as far as the kernel tells."""
    return not _waits_without_timeout(pid) or has_children(pid) or _handles_signals(pid)


def _sleeps_on(pid: int) -> bool:
    """Whether it waits again, now that the signal for its stacks is dealt with: a thread that these do not show may
    have woken it before it ended, and on a busy machine it has not come to a processor since.
    """
    for _ in range(LOOKS):
        if _waits_without_timeout(pid):
            return True
        time.sleep(LOOK_S)
    return False


def _sleeps(stack: str, waiting: int) -> bool:
    """Whether no thread of these can go on: each waits for another one, or for a lock that none will give up.

    Of `waiting` of them that is known already.
    """
    if not stack:
        return False
    left = count_threads(stack) - waiting
    threads = threads_in(stack)
    if left != 1 or waiting:
        return left == 0
    held = held_lock(threads)
    alone = len(threads) == 1 and wants_a_lock(threads[0])
    return alone or (held is not None and held.by_itself)


def _waits_without_timeout(pid: int) -> bool:
    """Whether the main thread of `pid` waits in a futex until it is woken; no where the kernel does not say."""
    try:
        number, *given = Path(f"/proc/{pid}/syscall").read_text().split()
        return int(number) == _FUTEX.get(os.uname().machine) and int(given[_TIMEOUT], 16) == 0
    except (OSError, ValueError, IndexError):
        return False


def _handles_signals(pid: int) -> bool:
    """Whether it handles a signal by which it might be woken; also where the kernel does not say."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, mask = line.partition(":")
            if name == "SigCgt":
                handled = int(mask, 16)
                return any(handled >> (each - 1) & 1 for each in set(signal.Signals) - _NO_ALARMS)
    return True
