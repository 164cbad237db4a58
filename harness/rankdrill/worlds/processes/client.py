"""The controller's end of the template: start it, have it fork and kill."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

from rankdrill.errors import UnsupportedPlatform, WorldError
from rankdrill.worlds.outcome import Death
from rankdrill.worlds.private import PrivateDirectory
from rankdrill.worlds.processes.cgroups import MemoryCgroup, memory_cgroup_of
from rankdrill.worlds.processes.session import kill_session
from rankdrill.worlds.processes.template import OBITUARY, PID, READY
from rankdrill.worlds.processes.wire import FrameReader

__all__ = ["RankHandle", "TemplateClient"]

START_BOUND_S = 120.0  # importing torch from a cold disk
CLOSE_BOUND_S = 5.0
_BOOT = "import sys; sys.path[:] = {path!r}; from rankdrill.worlds.processes.template import main; main({fd}, {run!r})"
# Threads that a fork would not take along, and that then hold locks for ever: none may start in the template.
_SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class RankHandle:
    """One rank's process: its socket, and the pipe on which the template says how it ended."""

    def __init__(self, rank: int, number: int, channel: socket.socket, obituary: int) -> None:
        self.rank = rank
        self.number = number  # of all ranks this template has forked
        self.channel = channel
        self.reader = FrameReader(channel)
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
        self._owner = os.getpid()
        self._private = PrivateDirectory()
        self.directory: Path = self._private.path
        self._sending = threading.Lock()
        self._ready = False
        self._numbers = itertools.count()
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boot = _BOOT.format(path=sys.path, fd=theirs.fileno(), run=str(self.directory))
        with open(self.directory / "template.log", "wb") as log, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", boot],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **_SINGLE_THREADED},
                start_new_session=True,
            )
        self._control = mine
        atexit.register(self.close)

    @property
    def alive(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until the template has imported everything; raises `WorldError` with its output if it cannot."""
        if self._ready:
            return
        self._control.settimeout(START_BOUND_S)
        try:
            # Left where it is: an alarm that is raised just after a read would lose it. Nothing else ever comes.
            answer = self._control.recv(64, socket.MSG_PEEK)
        except TimeoutError:
            answer = b""
        if answer != READY:
            log = (self.directory / "template.log").read_text(errors="replace").strip()
            raise WorldError(f"the template process did not start; it printed:\n{log[-4000:]}")
        self._control.settimeout(None)
        self._ready = True

    def preload(self, names: Sequence[str]) -> None:
        """Have the template import modules that every rank will need; ranks forked from now on have them."""
        with self._sending, contextlib.suppress(ConnectionError):  # whoever waits for it is told why it ended
            self._control.send(json.dumps({"preload": list(names)}).encode())

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
            with self._sending, contextlib.suppress(ConnectionError):  # they die with their template
                self._control.send(json.dumps({"signal": int(signum), "ranks": numbers}).encode())

    @cached_property
    def memory_cgroup(self) -> MemoryCgroup | None:
        """The control group that the template's memory, and that of the ranks forked from it, is counted in."""
        return memory_cgroup_of(self._process.pid)

    def ending(self) -> Death | None:
        """How the template ended, if need be after a moment; None if it has not."""
        try:
            ended = self._wait_ended()
        except ChildProcessError:  # reaped already
            code = self._process.returncode
            return Death(code, None, 0) if code >= 0 else Death(None, -code, 0)
        if ended is None:
            return None
        by_itself = ended.si_code == os.CLD_EXITED
        return Death(ended.si_status, None, 0) if by_itself else Death(None, ended.si_status, 0)

    def bury(self) -> None:
        """The template has died: kill what its ranks had started, which has nobody else to do it."""
        with contextlib.suppress(ChildProcessError):  # reaped already
            if self._wait_ended() is None:
                return
            kill_session(self._process.pid)
        self._process.poll()

    def _wait_ended(self) -> os.waitid_result | None:
        """Wait until the template has ended, and do not reap it, so that its number still is its own."""
        until = time.monotonic() + CLOSE_BOUND_S
        while time.monotonic() < until:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                return ended
            time.sleep(0.001)
        return None

    def close(self) -> None:
        """End the template and every rank; remove the private directory."""
        if self._owner != os.getpid():
            return
        atexit.unregister(self.close)
        self._control.close()
        try:
            self._process.wait(CLOSE_BOUND_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the ranks go with it, by their parent-death signal
            self._process.wait()
        self._private.remove()
