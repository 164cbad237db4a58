"""The doorbell of a page: what a rank sleeps on until another one wakes all, or dies.

An eventfd that all ranks have and nobody reads: each write to it is an edge, which ends every rank's `epoll`. Beside it
lies a descriptor of each other rank's process, which the kernel makes readable when that ends, also where a child of it
still holds all its descriptors.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence

from rankdrill.gathers.host.liveness import Identity, identify, is_gone

__all__ = ["Doorbell", "watch"]

# Where the kernel watches no processes (before Linux 5.3), a sleeping rank looks for them itself.
_LOOK_S = 0.02


class Doorbell:
    """This rank's end, of ranks that are `processes`; takes over the eventfd `descriptor`. Raises OSError."""

    def __init__(self, descriptor: int, processes: Sequence[Identity]) -> None:
        self.gone: set[int] = set()
        self._bell = descriptor
        self._epoll = select.epoll()
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)
        self._watches: dict[int, int] = {}
        self._unwatched: dict[int, Identity] = {}
        me = identify()
        for rank, process in enumerate(processes):
            if process.pid == me.pid:
                continue
            watching = watch(process.pid)
            if watching is None:
                self._unwatched[rank] = process
            else:
                self._watches[watching] = rank
                self._epoll.register(watching, select.EPOLLIN | select.EPOLLONESHOT)
        self._look()

    @staticmethod
    def create() -> int:
        """The descriptor of a new one. Raises OSError."""
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """A descriptor that is readable when `sleep` would end."""
        return self._epoll.fileno()

    def ring(self) -> None:
        """Wake all ranks; one that does not sleep will not the next time."""
        with contextlib.suppress(BlockingIOError):  # rung 2^64 times
            os.eventfd_write(self._bell, 1)

    def sleep(self, timeout_s: float | None) -> bool:
        """Until somebody rings or a process ends, which is in `gone` then; False if `timeout_s` seconds were over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if self._unwatched:
                left = _LOOK_S if left is None else min(left, _LOOK_S)
            events = self._epoll.poll(left)
            self.gone.update(self._watches[fd] for fd, _ in events if fd != self._bell)
            if events or self._look():
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def _look(self) -> bool:
        """Look for processes that nobody watches; whether one more has ended."""
        found = [rank for rank, process in self._unwatched.items() if is_gone(process, identify())]
        for rank in found:
            del self._unwatched[rank]
        self.gone.update(found)
        return bool(found)

    def close(self) -> None:
        """Let go of it; doing it twice is fine."""
        if self._epoll.closed:
            return
        self._epoll.close()
        for descriptor in (self._bell, *self._watches):
            os.close(descriptor)


def watch(pid: int) -> int | None:
    """A descriptor that becomes readable when process `pid` ends; None where the kernel has none, or it has ended."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return None
