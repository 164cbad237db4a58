"""The controller's end of the template: start it, have it fork and kill."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from rankdrill.errors import UnsupportedPlatform, WorldError
from rankdrill.worlds.call import NamedCall
from rankdrill.worlds.death import Death
from rankdrill.worlds.private import PrivateDirectory
from rankdrill.worlds.processes.cgroups import MemoryCgroup, memory_cgroup_of
from rankdrill.worlds.processes.nursery import keep_seconds
from rankdrill.worlds.processes.starting import ForkedTemplate, TemplateProcess, begin_template
from rankdrill.worlds.processes.template import OBITUARY, PID, READY
from rankdrill.worlds.processes.wire import MessageReader

__all__ = ["RankHandle", "TemplateClient"]

START_BOUND_S = 120.0  # importing torch from a cold disk
CLOSE_BOUND_S = 5.0
LOG_NAME = "template.log"


class RankHandle:
    """One rank's process: its socket, and the pipe on which the template says how it ended."""

    def __init__(self, rank: int, number: int, channel: socket.socket, obituary: int) -> None:
        self.rank = rank
        self.number = number  # of all ranks this template has forked
        self.channel = channel
        self.reader = MessageReader(channel)
        self.obituary = obituary
        self.up = False
        self.pid: int | None = None
        self.death: Death | None = None
        self.orphaned = False  # it died because its template did
        self._heard = b""

    def listen(self) -> Death | None:
        """Take news from the template, without waiting."""
        while self.death is None:
            try:
                news = os.read(self.obituary, 64)
            except BlockingIOError:
                break
            if not news:  # the template itself is gone; its ranks died with it
                self.orphaned = True
                self.death = Death(None, signal.SIGKILL, time.monotonic_ns())
                break
            self._heard += news
            if self.pid is None and len(self._heard) >= PID.size:
                (self.pid,) = PID.unpack_from(self._heard)
                self._heard = self._heard[PID.size :]
            if self.pid is not None and len(self._heard) >= OBITUARY.size:
                status, at_ns = OBITUARY.unpack_from(self._heard)
                killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                self.death = Death(None if killed else os.WEXITSTATUS(status), killed, at_ns)
        return self.death

    def close(self) -> None:
        self.channel.close()
        os.close(self.obituary)


class TemplateClient:
    """One template process and the private directory of this controller's worlds.

    Safe to use from several threads. `shared()` is the one that worlds use; it starts when first asked for.
    """

    _shared: TemplateClient | None = None
    _sharing = threading.Lock()

    @classmethod
    def shared(cls) -> TemplateClient:
        """This process's template; a forked child or a dead template gets a new one."""
        with cls._sharing:
            if cls._shared is None or not cls._shared.alive:
                cls._shared = cls()
            return cls._shared

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise UnsupportedPlatform(f"worlds of processes need Linux; this is {sys.platform}")
        keep = keep_seconds(os.environ)
        self._owner = os.getpid()
        self._private = PrivateDirectory()
        self.directory: Path = self._private.path
        self._sending = threading.Lock()
        self._ready = False
        self._numbers = itertools.count()
        self._preloads: list[bytes] = []
        self._begin(keep)
        atexit.register(self.close)

    def _begin(self, keep: float | None) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with open(self.directory / LOG_NAME, "ab") as log, theirs:
            self._process: TemplateProcess = begin_template(theirs, self.directory, log, keep)
        self._control = mine

    @property
    def alive(self) -> bool:
        return self._owner == os.getpid() and self._process.alive

    def wait_ready(self) -> None:
        """Wait until the template has imported everything; raises `WorldError` with its output if it cannot."""
        if self._ready:
            return
        if not self._hears_ready() and not self._started_instead():
            log = (self.directory / LOG_NAME).read_text(errors="replace").strip()
            raise WorldError(f"the template process did not start; it printed:\n{log[-4000:]}")
        self._control.settimeout(None)
        self._ready = True

    def _hears_ready(self) -> bool:
        self._control.settimeout(START_BOUND_S)
        try:
            # Left where it is: an alarm that is raised just after a read would lose it. Nothing else ever comes.
            return self._control.recv(64, socket.MSG_PEEK) == READY
        except (TimeoutError, ConnectionError):
            return False

    def _started_instead(self) -> bool:
        """Where a nursery was to fork a template, and has not for whatever reason: start one."""
        if not isinstance(self._process, ForkedTemplate):
            return False
        self._process.end(0.0)
        self._control.close()
        self._begin(None)
        for request in self._preloads:
            self._tell(request)
        return self._hears_ready()

    def preload(self, names: Sequence[str], prepare: NamedCall | None = None) -> None:
        """Have the template import modules that every rank will need, then call `prepare`, each of these once.

        Ranks forked from now on have them, and what the call has left.
        """
        with self._sending:
            request = json.dumps({"preload": list(names), "prepare": prepare}).encode()
            if not self._ready:
                self._preloads.append(request)  # it may take another template to become ready
            self._tell(request)

    def fork(self, spec: object) -> RankHandle:
        """Fork one rank that is told `spec` (a `RankSpec`)."""
        with self._sending:
            self.wait_ready()
            mine, theirs = socket.socketpair()
            heard, said = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(heard, False)
            fields = asdict(spec) | {"number": next(self._numbers)}  # type: ignore[call-overload]
            handle = RankHandle(fields["rank"], fields["number"], mine, heard)
            try:
                socket.send_fds(self._control, [json.dumps(fields).encode()], [theirs.fileno(), said])
            except ConnectionError:
                handle.close()
                raise WorldError(f"the process that ranks are forked from has ended: {self.ending()}") from None
            finally:
                theirs.close()
                os.close(said)
        return handle

    def kill(self, handles: list[RankHandle], signum: int = signal.SIGKILL) -> None:
        """Signal ranks. The template does it: it reaps them, so no pid can have been reused meanwhile."""
        numbers = [handle.number for handle in handles if handle.listen() is None]
        if numbers and self.alive:
            with self._sending:
                self._tell(json.dumps({"signal": int(signum), "ranks": numbers}).encode())

    def _tell(self, request: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # ranks die with their template; whoever waits for it is told why
            self._control.send(request)

    @cached_property
    def memory_cgroup(self) -> MemoryCgroup | None:
        """The control group that the template's memory, and that of the ranks forked from it, is counted in."""
        pid = self._process.pid
        return memory_cgroup_of(pid) if pid is not None else None

    def ending(self) -> Death | None:
        """How the template ended, if need be after a moment; None if it has not, or nobody can say."""
        status = self._process.exit_status(CLOSE_BOUND_S)
        if status is None:
            return None
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        return Death(None if killed else os.WEXITSTATUS(status), killed, 0)

    def bury(self) -> None:
        """The template has died: kill what its ranks had started, which has nobody else to do it."""
        self._process.bury(CLOSE_BOUND_S)

    def close(self) -> None:
        """End the template and every rank; remove the private directory."""
        if self._owner != os.getpid():
            return
        atexit.unregister(self.close)
        self._control.close()
        self._process.end(CLOSE_BOUND_S)
        self._private.remove()
