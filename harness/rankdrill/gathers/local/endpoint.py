"""The endpoint of a rank: a socket with a name in shared memory, where ranks of the same machine can find it.

Whether ranks share a machine is not guessed from host names: two ranks do if each sees the other's endpoint, a socket
of the same user under a name that nobody can guess, and can read a segment of its memory. Containers with a /dev/shm or
with process numbers of their own are machines of their own, and so is each rank where the kernel forbids such reading.
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
from dataclasses import dataclass

from rankdrill.gathers.encoding.wire import FrameError
from rankdrill.gathers.host import leftovers
from rankdrill.gathers.host.fence import has_fence
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.local import segment

__all__ = ["Address", "Endpoint", "caller_of", "is_visible", "open_endpoint", "sweep"]

DIRECTORY, PREFIX = "/dev/shm", "rankdrill-"
_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 4096


@dataclass(frozen=True)
class Address:
    """Where an endpoint is found: the path of its socket, and the descriptor of a segment that says this path."""

    path: str
    proof: int

    def __str__(self) -> str:
        return f"{self.path} {self.proof}"

    @staticmethod
    def parse(text: str) -> Address:
        """The address that `str` wrote."""
        path, _, proof = text.rpartition(" ")
        return Address(path, int(proof))


class Endpoint:
    """A listening socket; only processes of this user can connect."""

    def __init__(self, listener: socket.socket, address: Address) -> None:
        self._listener = listener
        self.address = address

    def fileno(self) -> int:
        """A descriptor that is readable when somebody calls."""
        return self._listener.fileno()

    def let_in(self, pids: Sequence[int], nbytes: int, deadline: float) -> tuple[bytes, socket.socket]:
        """The next caller's first `nbytes` bytes and its connection; callers other than `pids` are turned away.

        Raises OSError (TimeoutError at `deadline`, of `time.monotonic`).
        """
        while True:
            self._listener.settimeout(max(deadline - time.monotonic(), 0.001))
            link, _ = self._listener.accept()
            if caller_of(link) in {(pid, os.geteuid()) for pid in pids}:
                link.settimeout(max(deadline - time.monotonic(), 0.001))
                hello = link.recv(nbytes, socket.MSG_WAITALL)
                if len(hello) == nbytes:
                    return hello, link
            link.close()

    def close(self) -> None:
        """Take the name away and listen no longer; doing it twice is fine."""
        if self._listener.fileno() < 0:
            return
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.address.path)
        with contextlib.suppress(OSError):
            os.close(self.address.proof)


def open_endpoint() -> Endpoint | None:
    """A new endpoint of this process; None where there is no shared memory to put it, no memory, or no `fence`."""
    if not has_fence():
        return None
    sweep()
    path = os.path.join(DIRECTORY, f"{PREFIX}{identify()}-{secrets.token_hex(16)}")
    with contextlib.ExitStack() as undo:
        try:
            proof = segment.proof_of(path.encode())
            undo.callback(os.close, proof)
            listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(path)
            undo.callback(os.unlink, path)
            os.chmod(path, 0o600)  # before it listens, nobody can connect
            listener.listen(_BACKLOG)
        except (OSError, AttributeError):  # AttributeError: this Python has no memfd
            return None
        undo.pop_all()
    return Endpoint(listener, Address(path, proof))


def sweep() -> None:
    """Remove the endpoints that crashed processes of this user left; never raises an OSError."""
    leftovers.sweep(DIRECTORY, PREFIX, stat.S_ISSOCK, os.unlink)


def is_visible(address: Address, pid: int) -> bool:
    """Whether the endpoint of process `pid`, of this user, is there, and that process's memory can be read."""
    said = address.path.encode()
    try:
        found = os.lstat(address.path)
        with segment.open_segment(pid, address.proof, len(said)) as file:
            same = file.read() == said
    except (OSError, FrameError):
        return False
    return same and stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()


def caller_of(link: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel says."""
    pid, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user
