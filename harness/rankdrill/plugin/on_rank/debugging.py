"""A debugger's prompt on a rank: at the controller's terminal where that was lent to it, otherwise refused."""

from __future__ import annotations

import bdb
import importlib
import os
import pdb
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rankdrill.errors import UsageError
from rankdrill.plugin.commands import Lent
from rankdrill.worlds.context import RankContext

__all__ = ["Debugging"]


class Debugging:
    """A pytest plugin of the rank's session. With `post_mortem` a failure opens a prompt too."""

    def __init__(
        self, lent: Lent | None, context: RankContext, post_mortem: bool, kind: tuple[str, str] | None
    ) -> None:
        self._lent = lent
        self._context = context
        self._post_mortem = post_mortem and self._mine
        self._kind = kind
        self._nodeid = ""
        # Opened once: what is typed ahead, or comes from a pipe, is for the next prompts too.
        self._ends = _opened(lent) if lent is not None and self._mine else ()
        self._stdin = open(0, closefd=False)  # noqa: SIM115 (lives as long as the process)

    @property
    def _mine(self) -> bool:
        return self._lent is not None and self._lent.rank == self._context.index

    def install(self) -> None:
        """Take the place of all that opens a prompt; to be called after pytest's own debugging has."""
        pdb.set_trace = self._set_trace
        pytest.set_trace = self._set_trace
        if os.environ.get("PYTHONBREAKPOINT", "") in ("", "pdb.set_trace"):
            sys.breakpointhook = self._set_trace

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._nodeid = item.nodeid

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        told = call.excinfo is None or isinstance(call.excinfo.value, bdb.BdbQuit | pytest.exit.Exception)
        if self._post_mortem and report.failed and not told:
            assert call.excinfo is not None
            prompt = self._prompt(f"rank {self._context.index} failed in {report.when}", report.longreprtext)
            prompt.reset()
            prompt.interaction(None, call.excinfo.tb)
        return report

    def _set_trace(self, *_: Any, header: str | None = None, **__: Any) -> None:
        __tracebackhide__ = True
        index = self._context.index
        if self._lent is None:
            raise UsageError(
                f"breakpoint() on rank {index}, which has no terminal; to give it yours: "
                f"python -m pytest '{self._nodeid}' --pdb-rank={index}"
            )
        if self._mine:  # the others go on, and wait where they need this one
            prompt = self._prompt(header or f"rank {index} at a breakpoint")
            prompt.set_trace(sys._getframe(1))  # nothing may come after it: that is where the prompt would open

    def _prompt(self, header: str, text: str = "") -> Any:
        line = f" {header}: {self._nodeid} "
        return _prompt_class(_class_of(self._kind))(self._connected, f"\n{text}\n{line:>^80}\n")

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """The lent terminal is this process's standard input and output; what happens meanwhile is no step."""
        kept, streams = [os.dup(fd) for fd in (0, 1)], (sys.stdin, sys.stdout)
        with self._context.boundary.closed():
            for fd, end in enumerate(self._ends):
                os.dup2(end, fd)
            sys.stdin, sys.stdout = self._stdin, open(1, "w", closefd=False)  # noqa: SIM115 (of this prompt)
            try:
                yield
            finally:
                sys.stdout.flush()
                sys.stdin, sys.stdout = streams
                for fd, was in enumerate(kept):
                    os.dup2(was, fd)
                    os.close(was)


def _opened(lent: Lent) -> tuple[int, int]:
    # To open a pipe that nobody holds the other end of any more would wait for ever; to read it does not.
    reads = os.open(lent.stdin, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    os.set_blocking(reads, True)
    return reads, os.open(lent.stdout, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)


def _class_of(kind: tuple[str, str] | None) -> Any:
    if kind is None:
        return pdb.Pdb
    found: Any = importlib.import_module(kind[0])  # as --pdbcls has it
    for name in kind[1].split("."):
        found = getattr(found, name)
    return found


def _prompt_class(base: Any) -> Any:
    class Prompt(base):  # type: ignore[misc]  # whatever class --pdbcls names
        def __init__(self, connected: Any, header: str) -> None:
            super().__init__()
            self.nosigint = True  # Ctrl-C reaches the controller alone
            self._connected = connected
            self._header = header

        def interaction(self, *args: Any, **kwargs: Any) -> Any:
            with self._connected():
                self.stdin, self.stdout = sys.stdin, sys.stdout
                self.stdout.write(self._header)
                self._header = ""
                return super().interaction(*args, **kwargs)

        def do_quit(self, arg: str) -> Any:
            super().do_quit(arg)
            pytest.exit("Quitting debugger")

        do_q = do_exit = do_quit

    return Prompt
