"""What a rank leaves of its own end: where each of its threads was, and which call, if any, ended the process.

Python's fault handler writes it at a fatal signal, with no lock taken and whoever holds the interpreter's; a call such
as `os._exit` has it written just before. Both go to a file of the run's private directory. There it is noted too by
which exceptions threads of the rank ended, whose collectives others may wait for, and which of them the rank was
handling when it called a collective: that may be a ``finally`` on the way out of what failed.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from rankdrill.step import Site, Step
from rankdrill.worlds.processes.failing import FAILING, ended_by, failure_of, written

__all__ = ["BY", "NOTED", "WITH", "LastWords", "last_words_of"]

Target: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments that the fault handler was enabled with."""

BY = "ended by "  # begins what precedes the stacks where a call ended the process
WITH = " with "  # stands between such a call and the signal it sends, as the boundary announces it
NOTED = "noted at "  # begins a note; when (monotonic clock, ns) and what follow
_STDERR = 2


def last_words_of(directory: Path, rank: int) -> Path:
    """The file for them."""
    return directory / f"rank-{rank}.end"


class LastWords:
    """The last words of this process, in a file, from `install` on for as long as it lives.

    Whoever enables the fault handler for a file of their own has its words go there, until `take` is called.
    `raise_site` tells where in the user's code something was raised.
    """

    def __init__(self, path: Path, raise_site: Callable[[TracebackType | None], Site | None]) -> None:
        self._raise_site = raise_site
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (lives as long as the process)
        self._enable, self._disable = faulthandler.enable, faulthandler.disable
        self._mine: Target = (self._file,), {}
        self._target: Target | None = None
        self._hook = threading.excepthook

    def install(self) -> None:
        """Have fatal signals write here, and know of it when somebody else has them write elsewhere."""
        self.take()
        stand_in: Any = faulthandler
        stand_in.enable, stand_in.disable = self.enable, self.disable
        os.register_at_fork(after_in_child=self._forked)

    def take(self) -> None:
        """Have fatal signals write here again, and threads that end by an exception, before who looks at those now."""
        self.put_back(self._mine)
        hook = threading.excepthook
        if getattr(hook, "__func__", None) is not LastWords._note_thread:
            self._hook = hook
            threading.excepthook = self._note_thread

    def announce(self, call: str) -> None:
        """Write that `call` is about to end or stop the process, and where its threads are; nothing on a full disk."""
        with suppress(OSError):
            self._file.write(f"{BY}{call}\n".encode())
            faulthandler.dump_traceback(self._file, all_threads=True)

    def _note_thread(self, ended: threading.ExceptHookArgs, /) -> None:
        name = ended.thread.name if ended.thread is not None else "unknown"
        if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
            self._note_end(name, ended.exc_value)
        self._hook(ended)

    def note_ended(self, error: BaseException) -> None:
        """Write that this thread is ending by `error`, unless Python will have that told here."""
        if getattr(threading.excepthook, "__func__", None) is not LastWords._note_thread:
            self._note_end(threading.current_thread().name, error)

    def _note_end(self, thread: str, error: BaseException) -> None:
        self._note(f"thread {thread!r} ended by", error)
        with suppress(Exception):
            failure = ended_by(error, self._raise_site(error.__traceback__), thread)
            self._write(f"{FAILING}{time.monotonic_ns()}: {written(failure)}\n")

    def note_handled(self, step: Step, error: BaseException) -> None:
        """Write that the rank calls `step` while it handles `error`."""
        self._note("it handled", error, f", when it called {step.call}{step.where}")
        with suppress(Exception):
            failure = failure_of(step, error, self._raise_site(error.__traceback__))
            self._write(f"{FAILING}{time.monotonic_ns()}: {written(failure)}\n")

    def _note(self, before: str, error: BaseException, behind: str = "") -> None:
        with suppress(Exception):  # a full disk, or the user's exception does not let itself be shown
            site = self._raise_site(error.__traceback__)
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            told = f"{before} {text}{f', raised at {site}' if site is not None else ''}{behind}"
            self._write(f"{NOTED}{time.monotonic_ns()}: {told}\n")

    def _write(self, line: str) -> None:
        self._file.write(line.encode("utf-8", "backslashreplace"))

    @property
    def target(self) -> Target | None:
        """Where the fault handler writes; None when it is disabled."""
        return self._target

    def put_back(self, target: Target | None) -> None:
        """Enable it as it was, or disable it."""
        self._target = target
        if target is None:
            self._disable()
        else:
            self._enable(*target[0], **target[1])

    def enable(self, *args: Any, **kwargs: Any) -> None:
        """Stands in for `faulthandler.enable`."""
        self._enable(*args, **kwargs)
        self._target = args, kwargs

    def disable(self) -> bool:
        """Stands in for `faulthandler.disable`."""
        self._target = None
        disabled: Any = self._disable()
        return bool(disabled)

    def _forked(self) -> None:
        # A worker that the rank forks is not the rank: its end is for those who read what the rank prints.
        if self._target == self._mine:
            self._enable(_STDERR)
