"""The nursery: a process that has imported what templates need, and forks one for each controller that asks.

Starting a template takes as long as importing torch does, in every session anew; a fork of one that is there takes
milliseconds. A nursery serves those whose key it has (`key`), so nobody gets modules that his own imports would
not have given. It runs nothing of theirs: what they name is imported in the template. It ends by itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rankdrill.worlds.processes.nursery.inheritance import Inheritance
from rankdrill.worlds.processes.nursery.key import key_of, stamp_of_files, stamp_of_process
from rankdrill.worlds.processes.nursery.place import NurseryPlace, peer_uid
from rankdrill.worlds.processes.nursery.reach import LONGEST_S
from rankdrill.worlds.processes.nursery.same_modules import suppliers, unlike

__all__ = ["NUMBER", "main"]

MAX_REQUEST = 64  # what is long comes in a file
NUMBER = struct.Struct("<q")
BUSY_S = 0.1  # to ask again whether it may end, while somebody else looks for a nursery


def main(listener: int, home: str, key: str, keep: float) -> None:
    """Serve whoever connects to socket `listener`, until nobody has for as long as the last one wanted it to stay."""
    process = stamp_of_process()
    _check(key, process)
    os.chdir("/")  # where it was started may be removed, or a disk that is to be taken away
    import rankdrill.worlds.processes.preload
    import rankdrill.worlds.processes.rank  # noqa: F401 (for the forks)

    _check(key, process)  # somebody may have saved a file meanwhile
    nursery = Nursery(socket.socket(fileno=listener), NurseryPlace(Path(home), key), keep)
    _settle()
    adopted = nursery.serve()
    if adopted is not None:
        adopted.live()


def _check(key: str, process: dict[str, Any]) -> None:
    if key_of(process, stamp_of_files()) != key:
        sys.exit("this nursery would not be the one that is asked for: its imports give other files")


def _settle() -> None:
    """As a template does before it forks: templates share these pages."""
    from rankdrill.worlds.processes.pages import collapse_memory

    gc.collect()
    gc.freeze()
    collapse_memory()
    _say_no_more(os.open(os.devnull, os.O_RDWR))


def _say_no_more(null: int) -> None:
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _understood(request: bytes) -> tuple[str, float]:
    """A word, and for how many seconds the nursery is to stay; no word where this is nonsense."""
    word, _, seconds = request.decode(errors="replace").partition(" ")
    try:
        keep = float(seconds or 0)
    except ValueError:
        keep = math.nan
    return (word, keep) if 0 <= keep <= LONGEST_S else ("", 0.0)


@dataclass
class _Ward:
    """A template, which is not reaped before its controller is done with it: its number remains its own."""

    pid: int
    pidfd: int
    ended: bool = False
    left: bool = False


class Given(NamedTuple):
    """The descriptors that come with a request."""

    request: int  # a file: the run's directory, and what is inherited from the controller
    control: int
    log: int
    cwd: int
    controller: int  # a pidfd


@dataclass(frozen=True)
class Adopted:
    """The forked process's part: to become the template that its controller would have started."""

    connection: socket.socket
    given: Given
    taken: dict[str, str]
    names: frozenset[str]

    def live(self) -> None:
        """Be a template; never returns."""
        from rankdrill.worlds.processes.template import attend

        try:
            directory = self._settle_in()
            # Fails if the controller has given up waiting: it may have another template by now, in that directory.
            with self.connection:
                myself = os.pidfd_open(os.getpid())
                socket.send_fds(self.connection, [NUMBER.pack(os.getpid())], [myself])
                os.close(myself)
        except BaseException as error:
            print(f"not forked from the nursery: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        attend(self.given.control, directory, self.given.controller)

    def _settle_in(self) -> str:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((null, 0), (self.given.log, 1), (self.given.log, 2)):
            os.dup2(fd, target)
        os.fchdir(self.given.cwd)
        with open(self.given.request, "rb") as file:
            asked = json.load(file)
        for fd in (null, self.given.log, self.given.cwd):
            os.close(fd)
        inheritance = Inheritance(**asked["inheritance"])
        inheritance.take()
        strange = unlike(sys.path, self.taken, self.names)
        if strange is not None:
            raise ImportError(strange)
        return str(asked["directory"])


class Nursery:
    """Forks and reaps templates on request."""

    def __init__(self, listener: socket.socket, place: NurseryPlace, keep: float) -> None:
        self._listener = listener
        self._place = place
        self._wards: dict[socket.socket, _Ward | None] = {}  # by connection; None has not asked for a template
        self._names = frozenset({name.partition(".")[0] for name in sys.modules} - {"rankdrill"})  # has its own stamp
        self._taken = suppliers(sys.path, self._names)
        self._began = self._idle_since = time.monotonic()
        self._keep = keep
        self._file = place.check()
        self._selector = selectors.DefaultSelector()
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> Adopted | None:
        """Returns in each forked process, with what it has to do; and in the nursery itself at its end, with None."""
        while not self._may_end():
            for key, _ in self._selector.select(self._patience()):
                adopted: Adopted | None = key.data()
                if adopted is not None:
                    return adopted
        return None

    def _living(self) -> int:
        return sum(ward is not None and not ward.ended for ward in self._wards.values())

    def _patience(self) -> float | None:
        if self._living():
            return None
        return max(self._idle_since + self._keep - time.monotonic(), BUSY_S)

    def _may_end(self) -> bool:
        """Whether it has been idle for long enough; if so, nobody can have connected and nobody will."""
        if self._living() or time.monotonic() < self._idle_since + self._keep:
            return False
        try:
            with self._place.locked() as mine:
                if not mine or self._selector.select(0):
                    return False
                if self._place.check() == self._file:  # not another's, who found this one's removed
                    self._place.remove()
        except OSError:  # it is gone, as whoever cleans up takes all temporary files away
            pass
        return True

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            if peer_uid(connection) != os.getuid():
                connection.close()
                return
            connection.setblocking(False)
            self._idle_since = time.monotonic()  # it has yet to say what it wants
            self._wards[connection] = None
            self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(connection))

    def _hear(self, connection: socket.socket) -> Adopted | None:
        try:
            request, fds, _, _ = socket.recv_fds(connection, MAX_REQUEST, len(Given._fields), socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return None
        except OSError:
            request, fds = b"", []
        word, keep = _understood(request)
        if word == "fork" and keep and len(fds) == len(Given._fields) and self._wards[connection] is None:
            self._keep = keep
            return self._fork(connection, Given(*fds))
        for fd in fds:
            os.close(fd)
        if word == "status":
            self._tell(connection)
        elif word == "end":
            self._keep = 0.0
        else:  # most often nothing: the other end is closed
            self._leave(connection)
        return None

    def _tell(self, connection: socket.socket) -> None:
        status = {"pid": os.getpid(), "templates": self._living(), "up_s": time.monotonic() - self._began}
        with contextlib.suppress(OSError):
            connection.send(json.dumps(status | {"keep_s": self._keep}).encode())

    def _fork(self, connection: socket.socket, given: Given) -> Adopted | None:
        pid = os.fork()
        if pid == 0:
            self._let_go(connection)
            return Adopted(connection, given, self._taken, self._names)
        for fd in given:
            os.close(fd)
        ward = _Ward(pid, os.pidfd_open(pid))
        self._wards[connection] = ward
        self._selector.register(ward.pidfd, selectors.EVENT_READ, lambda: self._ended(connection, ward))
        return None

    def _let_go(self, kept: socket.socket) -> None:
        """In a forked process: have none of the nursery's descriptors, but for the connection of its own."""
        self._selector.close()
        self._listener.close()
        for connection, ward in self._wards.items():
            if connection is not kept:
                connection.close()
            if ward is not None and not ward.ended:
                os.close(ward.pidfd)

    def _ended(self, connection: socket.socket, ward: _Ward) -> None:
        self._selector.unregister(ward.pidfd)
        os.close(ward.pidfd)
        ward.ended = True
        self._idle_since = time.monotonic()
        self._reap(connection, ward)

    def _leave(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        ward = self._wards[connection]
        if ward is None:
            del self._wards[connection]
            connection.close()
        else:
            ward.left = True
            self._reap(connection, ward)

    def _reap(self, connection: socket.socket, ward: _Ward) -> None:
        if ward.ended and ward.left:
            os.waitpid(ward.pid, 0)
            del self._wards[connection]
            connection.close()
