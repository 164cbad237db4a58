"""Calls that end or stop the process at once: no exception, no clean-up, no last line; said before they are made."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch
from rankdrill.whose import Whose, whose_file

__all__ = ["ending_patches"]

_FUNCTIONS = ("_exit", "abort")
_NOT_TO_BE_HANDLED = (signal.SIGKILL, signal.SIGSTOP)
_TELLS_ITSELF = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # by the fault handler
_HARMLESS = (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH)  # nothing happens unless it is handled


def ending_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes `boundary` say that the process is about to end or stop itself, inside of a recording or not."""
    for name in _FUNCTIONS:
        yield Patch(os, name, _announced(boundary, functools.partial(_spelled, f"os.{name}")))
    yield Patch(os, "kill", _announced(boundary, lambda args: _sent("os.kill", args, os.getpid())))
    yield Patch(os, "killpg", _announced(boundary, lambda args: _sent("os.killpg", args, os.getpgrp())))
    yield Patch(signal, "raise_signal", _announced(boundary, lambda args: _sent("signal.raise_signal", (0, *args), 0)))
    to_a_thread = functools.partial(_to_a_thread, "signal.pthread_kill")
    yield Patch(signal, "pthread_kill", _announced(boundary, to_a_thread))


def _spelled(name: str, args: tuple[Any, ...]) -> str:
    return name


def _announced(boundary: Boundary, name: Callable[[tuple[Any, ...]], str]) -> Callable[[Any], Any]:
    """`name` says of a call's arguments what is to be said; nothing, if it will not end or stop the process."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def end(*args: Any, **kwargs: Any) -> Any:
            # A planned strike, or the rank when its controller is done with it.
            if whose_file(sys._getframe(1).f_code.co_filename) is not Whose.OURS:
                told = name(args)
                if told:
                    boundary.announce_end(told)
            return original(*args, **kwargs)

        return end

    return make


def _sent(function: str, args: tuple[Any, ...], me: int) -> str:
    """``os.kill with SIGKILL``, if it is this process that gets a signal which it does not handle."""
    if len(args) != 2 or args[0] not in (me, 0):
        return ""
    try:
        sent = signal.Signals(args[1])
    except ValueError:  # 0 asks whether it is there; others have no name
        return ""
    handled = sent not in _NOT_TO_BE_HANDLED and signal.getsignal(sent) is not signal.SIG_DFL
    return "" if handled or sent in _HARMLESS + _TELLS_ITSELF else f"{function} with {sent.name}"


def _to_a_thread(function: str, args: tuple[Any, ...]) -> str:
    own = {thread.ident for thread in threading.enumerate()}
    return _sent(function, (0, *args[1:]), 0) if args and args[0] in own else ""
