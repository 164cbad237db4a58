"""The endpoint of a rank: a socket with a name in shared memory, where ranks of the same machine can find it.

Whether ranks share a machine is not guessed from host names: two ranks do if each sees the other's endpoint, a socket
of the same user under a name that nobody can guess. Containers with a /dev/shm of their own are machines of their own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Sequence

from rankdrill.gathers import leftovers
from rankdrill.gathers.liveness import identify

__all__ = ["Endpoint", "is_visible", "open_endpoint", "sweep"]

DIRECTORY, PREFIX = "/dev/shm", "rankdrill-"
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 4096


class Endpoint:
    """A listening socket; only processes of this user can connect."""

    def __init__(self, listener: socket.socket, address: str) -> None:
        self._listener = listener
        self.address = address

    def let_in(self, pids: Sequence[int], nbytes: int, deadline: float) -> tuple[bytes, socket.socket]:
        """The next caller's first `nbytes` bytes and its connection; callers other than `pids` are turned away.

        Raises OSError (TimeoutError at `deadline`, of `time.monotonic`).
        """
        while True:
            self._listener.settimeout(max(deadline - time.monotonic(), 0.001))
            link, _ = self._listener.accept()
            if _caller(link) in {(pid, os.geteuid()) for pid in pids}:
                link.settimeout(max(deadline - time.monotonic(), 0.001))
                hello = link.recv(nbytes, socket.MSG_WAITALL)
                if len(hello) == nbytes:
                    return hello, link
            link.close()

    def close(self) -> None:
        """Take the name away and listen no longer."""
        with contextlib.suppress(OSError):
            os.unlink(self.address)
        self._listener.close()


def open_endpoint() -> Endpoint | None:
    """A new endpoint of this process; None where there is no shared memory to put it, or no memory."""
    sweep()
    address = os.path.join(DIRECTORY, f"{PREFIX}{identify()}-{secrets.token_hex(16)}")
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        listener.bind(address)
        os.chmod(address, 0o600)  # before it listens, nobody can connect
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        with contextlib.suppress(OSError):
            os.unlink(address)
        return None
    return Endpoint(listener, address)


def sweep() -> None:
    """Remove the endpoints that crashed processes of this user left; never raises an OSError."""
    leftovers.sweep(DIRECTORY, PREFIX, stat.S_ISSOCK, os.unlink)


def is_visible(address: str) -> bool:
    """Whether there is an endpoint of this user at `address`."""
    try:
        found = os.lstat(address)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def _caller(link: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel says."""
    pid, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
