"""How a controller comes by its template: it starts one, or a nursery forks one for it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Protocol

from rankdrill.worlds.home import home
from rankdrill.worlds.processes.nursery import Inheritance, Nurseries, nursery_key
from rankdrill.worlds.processes.nursery.key import environment_to_start_in
from rankdrill.worlds.processes.nursery.server import NUMBER
from rankdrill.worlds.processes.session import kill_session

__all__ = ["ForkedTemplate", "StartedTemplate", "TemplateProcess", "begin_template"]

_BOOT = "import sys; sys.path[:] = {path!r}; from rankdrill.worlds.processes.template import main; main({fd}, {run!r})"


class TemplateProcess(Protocol):
    """A template as its controller sees it."""

    @property
    def alive(self) -> bool:
        """Whether it runs, or may still come to."""

    @property
    def pid(self) -> int | None:
        """Its number; None where it is not known to be there yet."""

    def exit_status(self, bound: float) -> int | None:
        """How it ended, as `os.waitpid` says it, if it does within `bound` seconds; None where that is not known."""

    def end(self, bound: float) -> None:
        """Wait for its end, which the controller has brought about; kill it after `bound` seconds."""

    def bury(self, bound: float) -> None:
        """If it ends within `bound` seconds, kill what its ranks had started: it did not get to that itself."""


def begin_template(control: socket.socket, directory: Path, log: BinaryIO, keep: float | None) -> TemplateProcess:
    """A template that serves `control` and prints to `log`, forked if a nursery is to be kept for `keep` seconds.

    Does not wait for it. One that was to be forked may not come to be: then `control` is closed before it is ready.
    """
    if keep is not None:
        try:
            return ForkedTemplate(control, directory, log, keep)
        except Exception as error:  # whatever the reason, it can be started as without a nursery
            log.write(f"no nursery: {error!r}\n".encode())
            log.flush()
    return StartedTemplate(control, directory, log)


class StartedTemplate:
    """A child of the controller: an interpreter of its own, which imports everything anew."""

    def __init__(self, control: socket.socket, directory: Path, log: BinaryIO) -> None:
        boot = _BOOT.format(path=sys.path, fd=control.fileno(), run=str(directory))
        self._process = subprocess.Popen(
            [sys.executable, "-c", boot],
            pass_fds=[control.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment_to_start_in(),
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def exit_status(self, bound: float) -> int | None:
        try:
            ended = self._wait_ended(bound)
        except ChildProcessError:  # reaped already
            code = self._process.returncode
            return code << 8 if code >= 0 else -code
        if ended is None:
            return None
        return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status

    def end(self, bound: float) -> None:
        try:
            self._process.wait(bound)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the ranks go with it, by their parent-death signal
            self._process.wait()

    def bury(self, bound: float) -> None:
        with contextlib.suppress(ChildProcessError):  # reaped already
            if self._wait_ended(bound) is None:
                return
            kill_session(self._process.pid)
        self._process.poll()

    def _wait_ended(self, bound: float) -> os.waitid_result | None:
        """Wait until it has ended, and do not reap it, so that its number still is its own."""
        until = time.monotonic() + bound
        while time.monotonic() < until:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                return ended
            time.sleep(0.001)
        return None


class ForkedTemplate:
    """A child of a nursery, which reaps it when the connection is closed: until then its number is its own."""

    def __init__(self, control: socket.socket, directory: Path, log: BinaryIO, keep: float) -> None:
        self._hearing = threading.Lock()
        self._ending = threading.Lock()  # a thread that ends it makes its ranks' worlds, in other threads, bury it
        self._pid: int | None = None
        self._pidfd: int | None = None  # none before it is known to be there
        self._over = False
        self._status: int | None = None  # read while it was there to be read
        mine = os.pidfd_open(os.getpid())
        here = os.open(os.curdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        asked = {"directory": str(directory), "inheritance": asdict(Inheritance.of_this_process())}
        request = _file_of(json.dumps(asked).encode())
        fds = [request, control.fileno(), log.fileno(), here, mine]
        try:
            self._connection = Nurseries(home()).reach(nursery_key(), keep, log)
            try:
                socket.send_fds(self._connection, [f"fork {keep!r}".encode()], fds)
            except OSError:
                self._connection.close()
                raise
        finally:
            for fd in (request, here, mine):
                os.close(fd)

    @property
    def alive(self) -> bool:
        self._hear()
        return not self._over and (self._pidfd is None or not _ended(self._pidfd, 0.0))

    @property
    def pid(self) -> int | None:
        self._hear()
        return self._pid

    def exit_status(self, bound: float) -> int | None:
        self._hear()
        if not self._over and self._pidfd is not None and self._pid is not None and _ended(self._pidfd, bound):
            self._status = _status_of_zombie(self._pid)
        return self._status

    def end(self, bound: float) -> None:
        with self._ending:
            if self._over:
                return
            # Whoever has not answered yet finds that nobody listens, and does not become a template.
            self._connection.shutdown(socket.SHUT_RD)
            self._hear()
            if self._pidfd is not None and not _ended(self._pidfd, bound):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                _ended(self._pidfd, bound)
            self._let_go()

    def bury(self, bound: float) -> None:
        self._hear()
        with self._ending:
            if self._over or self._pidfd is None or self._pid is None or not _ended(self._pidfd, bound):
                return
            self._status = _status_of_zombie(self._pid)
            kill_session(self._pid)
            self._let_go()

    def _hear(self) -> None:
        """Take the nursery's answer if it is there: the template's number, and a descriptor of it."""
        with self._hearing:
            if self._over or self._pidfd is not None:
                return
            try:
                number, fds, _, _ = socket.recv_fds(self._connection, NUMBER.size, 1, socket.MSG_CMSG_CLOEXEC)
            except (BlockingIOError, ConnectionError):
                return
            if fds:
                (self._pid,), (self._pidfd,) = NUMBER.unpack(number), fds

    def _let_go(self) -> None:
        with self._hearing:
            self._over = True
            self._connection.close()
            if self._pidfd is not None:
                os.close(self._pidfd)


def _file_of(content: bytes) -> int:
    fd = os.memfd_create("rankdrill-request")
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _status_of_zombie(pid: int) -> int | None:
    """The exit status of a process that has ended and not been reaped by its parent, which is not this one."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().split()[-1])
    except (OSError, ValueError):
        return None


def _ended(pidfd: int, bound: float) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(1000 * bound))
