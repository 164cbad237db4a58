"""The template: a process that has imported everything and forks ranks from itself.

It is single-threaded, runs no torch operation and never touches CUDA, so a fork of it is a clean process that
already has torch. It is the ranks' parent: it reaps them, says at once how each ended, and kills them all, with
whatever they started, when its controller is gone. Unlike the standard library's fork server it forks without
re-importing the controller's main module, kills without racing against reused pids, and survives no controller.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rankdrill.worlds.processes.mpi import ProcessManager

if TYPE_CHECKING:
    from rankdrill.boundary import Prepared

__all__ = ["OBITUARY", "PID", "READY", "attend", "main"]

READY = b"ready"
PID = struct.Struct("<q")
OBITUARY = struct.Struct("<iQ")  # wait status, monotonic ns when it was noticed
MAX_REQUEST = 1 << 16
BURY_BOUND_S = 5.0  # for everything below the template to be gone
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(fd: int, run_directory: str) -> None:
    """Be the template of the parent process, which is at the other end of socket `fd`; never returns."""
    attend(fd, run_directory, _watch_process(os.getppid()))


def attend(fd: int, run_directory: str, controller: int | None) -> NoReturn:
    """Serve the controller, whom a pidfd may tell of, until it is gone; then end this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    entry = _preload()
    Template(socket.socket(fileno=fd), controller, Path(run_directory), entry).serve()
    _leave()


def _leave() -> NoReturn:
    """End as an interpreter does, but for taking thousands of modules apart: the controller waits for it."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def _preload() -> Callable[[int, dict[str, Any], Any], None]:
    # One shared resource tracker: a rank that used multiprocessing's shared memory would start one of its own.
    from multiprocessing import resource_tracker

    import rankdrill.worlds.processes.preload  # noqa: F401
    from rankdrill.worlds.processes.rank import rank_main

    resource_tracker.ensure_running()
    return rank_main


def _settle() -> Prepared:
    """What has been imported stays: make forks of it cheap. Returns the boundaries that each is to take."""
    from rankdrill.boundary import Prepared
    from rankdrill.worlds.processes.pages import collapse_memory

    prepared = Prepared()
    inspect.getmodule(_settle.__code__, "/")  # another, which each rank's first traceback would make by itself
    gc.collect()
    gc.freeze()  # forks then share these pages instead of copying them at their first collection
    collapse_memory()
    return prepared


def signal_all(pids: Sequence[int], signum: int) -> None:
    """Signal processes that have not been waited for; of those to be killed none lives to see another end.

    Between two kills this process may be made to wait, long enough for a rank to report that it lost its peer.
    """
    if signum == signal.SIGKILL:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signum)


class Template:
    """Forks, reaps and kills ranks on request."""

    def __init__(
        self,
        control: socket.socket,
        controller: int | None,
        directory: Path,
        entry: Callable[[int, dict[str, Any], Any], None],
    ) -> None:
        self._control = control
        self._controller = controller
        self._directory = directory
        self._entry = entry
        self._asked_for: set[str] = set()
        self._prepared: Prepared | None = None  # not settled since the last import
        self._obituaries: dict[int, int] = {}  # rank's pid -> pipe to its controller
        self._pids: dict[int, int] = {}  # the controller's number for a rank -> its pid
        self._mine = _children()  # the resource tracker
        self._selector = selectors.DefaultSelector()
        self._manager = ProcessManager(self._selector)
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ, self._request)
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._reap)
        if self._controller is not None:
            self._selector.register(self._controller, selectors.EVENT_READ, self._abandoned)
        try:
            self._control.send(READY)
            while True:
                settled = self._prepared is not None
                events = self._selector.select(None if settled else 0)
                for key, _ in events:
                    key.data()
                if not settled and not events:
                    self._prepared = _settle()
        except (EOFError, ConnectionError):
            self._bury()

    def _abandoned(self) -> None:
        raise EOFError  # a fork of the controller may still hold its end of the socket

    def _request(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._control, MAX_REQUEST, 4)
        if not message:
            raise EOFError
        request = json.loads(message)
        if "preload" in request:
            self._import(request["preload"])
            if request["prepare"] is not None:
                self._prepare(*request["prepare"])
        elif "signal" in request:
            pids = [pid for number in request["ranks"] if (pid := self._pids.get(number)) in self._obituaries]
            signal_all(pids, request["signal"])
        else:
            self._fork(request.pop("number"), request, *fds)

    def _import(self, names: list[str]) -> None:
        for name in names:
            self._once(name, partial(importlib.import_module, name))

    def _prepare(self, module: str, function: str, arguments: list[Any]) -> None:
        self._once(
            f"{module}:{function} {json.dumps(arguments)}",
            lambda: getattr(importlib.import_module(module), function)(*arguments),
        )

    def _once(self, name: str, do: Callable[[], Any]) -> None:
        if name in self._asked_for:
            return
        self._asked_for.add(name)
        if self._prepared is not None:
            self._prepared.withdraw()
            self._prepared = None
        try:
            do()
        except Exception as error:  # a rank that needs it will fail with the same error, where it can be seen
            print(f"cannot preload {name}: {error!r}", file=sys.stderr, flush=True)

    def _fork(self, number: int, spec: dict[str, Any], channel: int, obituary: int) -> None:
        if self._prepared is None:
            self._prepared = _settle()
        template = os.getpid()
        seat = self._manager.seat(spec["directory"], spec["world_size"]) if spec["mpi"] else None
        pid = os.fork()
        if pid == 0:
            try:
                told = spec if seat is None else spec | {"pmi": seat.detach()}
                self._become_rank(template, channel, told)
            finally:
                os._exit(1)
        os.close(channel)
        if seat is not None:
            seat.close()
        self._obituaries[pid] = obituary
        self._pids[number] = pid
        with contextlib.suppress(BrokenPipeError):  # given up before it was born; the signal follows
            os.write(obituary, PID.pack(pid))

    def _become_rank(self, template: int, channel: int, spec: dict[str, Any]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != template:
            os._exit(1)  # the template died before it could take this rank along
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._manager.close()
        self._selector.close()
        watch = [] if self._controller is None else [self._controller]
        for fd in (self._control.detach(), self._wake_r, self._wake_w, *watch, *self._obituaries.values()):
            os.close(fd)
        self._entry(channel, spec, self._prepared)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, 4096)
        died = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            died = True
            obituary = self._obituaries.pop(pid, None)
            if obituary is not None:
                with contextlib.suppress(BrokenPipeError):
                    os.write(obituary, OBITUARY.pack(status, time.monotonic_ns()))
                os.close(obituary)
        if died:
            self._pids = {number: pid for number, pid in self._pids.items() if pid in self._obituaries}
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        # What a dead rank had started (data-loader workers, say) is now a child of this subreaper.
        for pid in _children() - self._mine - set(self._obituaries):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        """The controller is gone: so are its ranks, then its files."""
        for pid in self._obituaries:
            os.kill(pid, signal.SIGKILL)
        for pid in self._obituaries:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._obituaries.clear()
        until = time.monotonic() + BURY_BOUND_S
        while _children() - self._mine and time.monotonic() < until:
            self._kill_orphans()  # each that dies leaves its own children to this process
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.001)
        from rankdrill.worlds.private import remove_segments

        remove_segments(self._directory)
        shutil.rmtree(self._directory, ignore_errors=True)


def _watch_process(pid: int) -> int | None:
    """A descriptor that becomes readable when `pid` ends; None where the kernel has no such thing."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _children() -> set[int]:
    pid = os.getpid()
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(child) for child in listed.split()}


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
