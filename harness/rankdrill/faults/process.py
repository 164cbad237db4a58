"""Strikes at the process: it ends, stops, or is late."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from rankdrill.faults.steps import OPS
from rankdrill.faults.strike import Argument, Steps, Strike, When, around
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.boundary import Call

__all__ = ["STRIKES", "Crash"]
__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MAX_SECONDS = 3600.0
_SECONDS = Argument("seconds", float, 0.0, MAX_SECONDS, "seconds")
_MAX_MICROSECONDS = 2**32 - 1
_NAMING = frozenset({"rename", "replace", "link"})


class Kill(Strike):
    name = "kill"
    does = "The process gets SIGKILL."
    seen = "An out-of-memory kill, a preempted node: peers see the connection closed, or a timeout."
    on = around(OPS)
    survivable = False

    def act(self, call: Call) -> None:
        _kill()


class Crash(Strike):
    name = "crash"
    does = "The process gets SIGKILL between writing a file and giving it its final name."
    seen = "A job killed while it saves: a temporary file is left over, the final one is absent or old."
    on: ClassVar[Mapping[When, Steps]] = {When.BEFORE: {Kind.FILE: _NAMING, Kind.SHM: _NAMING}}
    survivable = False

    def act(self, call: Call) -> None:
        _kill()


class Stop(Strike):
    name = "stop"
    does = "The process gets SIGSTOP, and goes on only when somebody sends SIGCONT."
    seen = "A frozen container, a debugger, a suspended machine: peers see nothing until their timeout."
    on = around(OPS)

    def act(self, call: Call) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class Exit(Strike):
    name = "exit"
    does = "The process ends at once with an exit code, without clean-up."
    seen = "A library that calls `_exit`, a supervisor that ends the process: an exit code and no traceback."
    on = around(OPS)
    arguments = (Argument("code", int, 0, 255, default=1),)
    survivable = False

    def act(self, call: Call) -> None:
        _flush()
        os._exit(int(self.values[0]))


class Abort(Strike):
    name = "abort"
    does = "The process calls `abort`."
    seen = "A failed check in C++, as in gloo's or NCCL's watchdog: SIGABRT and a stack on stderr."
    on = around(OPS)
    survivable = False

    def act(self, call: Call) -> None:
        _flush()
        os.abort()


class HoldGil(Strike):
    name = "hold_gil"
    does = "No Python code runs in the process for that long: the interpreter lock is held."
    seen = "A C extension that computes or waits with the lock held: the rank's heartbeats and watchdogs fall silent."
    on = around(OPS)
    arguments = (_SECONDS,)

    def act(self, call: Call) -> None:
        # PyDLL, unlike CDLL, keeps the lock during the call; a signal ends the call early.
        usleep = ctypes.PyDLL(None).usleep
        until = time.monotonic_ns() + int(self.values[0] * 1e9)
        left = until - time.monotonic_ns()
        while left > 0:
            usleep(ctypes.c_uint(min(left // 1000 + 1, _MAX_MICROSECONDS)))
            left = until - time.monotonic_ns()


class Delay(Strike):
    name = "delay"
    does = "The thread sleeps for that long."
    seen = "A straggler: a slow disk, a slow node, a page that is swapped in."
    on = around(OPS)
    arguments = (_SECONDS,)

    def act(self, call: Call) -> None:
        time.sleep(self.values[0])


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(MAX_SECONDS)  # SIGKILL may take a moment to arrive; nothing more must happen until then


def _flush() -> None:
    # What the rank printed is evidence; it would be lost with the process.
    for stream in (sys.stdout, sys.stderr):
        flush: Any = getattr(stream, "flush", None)
        if flush:
            flush()


STRIKES: tuple[type[Strike], ...] = (Kill, Stop, Exit, Abort, HoldGil, Delay)
