"""Where nurseries are found: one socket for each key, and the lock under which they are looked for and end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["NurseryPlace", "peer_uid"]

LOCK_NAME = "nurseries.lock"
BACKLOG = 128  # controllers that wait while a nursery imports torch
RETRY_S = 0.005
_CREDENTIALS = struct.Struct("<iII")  # of a peer: pid, uid, gid


class NurseryPlace:
    """The place of the nursery with `key` in `home`, a user's private directory."""

    def __init__(self, home: Path, key: str) -> None:
        self._home = home
        self._path = home / f"nursery-{key}.socket"

    @staticmethod
    def all(home: Path) -> list[NurseryPlace]:
        """The places of those that are, or have been and were killed."""
        names = sorted(path.stem.removeprefix("nursery-") for path in home.glob("nursery-*.socket"))
        return [NurseryPlace(home, name) for name in names]

    @contextlib.contextmanager
    def locked(self, bound: float = 0.0) -> Iterator[bool]:
        """Hold the lock; gives False where somebody else has it for longer than `bound` seconds."""
        until = time.monotonic() + bound
        lock = os.open(self._home / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            mine = _lock(lock)
            while not mine and time.monotonic() < until:
                time.sleep(RETRY_S)
                mine = _lock(lock)
            yield mine
        finally:
            os.close(lock)

    def connect(self) -> socket.socket:
        """Connect to the nursery; raises `FileNotFoundError` or `ConnectionRefusedError` where there is none."""
        self.check()
        connection = _socket()
        try:
            with self._short() as path:
                connection.connect(path)
            if peer_uid(connection) != os.getuid():
                raise PermissionError(f"somebody else listens at {self._path}")
        except BaseException:
            connection.close()
            raise
        return connection

    def listen(self) -> socket.socket:
        """Take the place, after a nursery that was killed too; to be asked under the lock."""
        with contextlib.suppress(FileNotFoundError):
            self.check()
            self.remove()
        listener = _socket()
        with self._short() as path:
            listener.bind(path)
        listener.listen(BACKLOG)
        return listener

    def check(self) -> tuple[int, int]:
        """Which file this is; raises `PermissionError` if it is no socket of ours."""
        found = self._path.lstat()
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{self._path} is not a socket of yours; remove it")
        return found.st_dev, found.st_ino

    def remove(self) -> None:
        """Give the place up; to be asked under the lock."""
        self._path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _short(self) -> Iterator[str]:
        # An address has 108 bytes at most, which a temporary directory may need for itself.
        home = os.open(self._home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{home}/{self._path.name}"
        finally:
            os.close(home)


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(packed)[1])


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)  # a nursery that takes nobody any more is as good as none
    return made


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
