"""pytest's handlers for what a test logs, attached once and not in every phase anew.

For each of a test's three phases pytest attaches two handlers to every logger that does not propagate, and takes them
off again. Torch alone has some forty such loggers: half of what a test costs. Here the handlers stay where they are,
and each phase only looks whether that is still right; where nothing but a body runs in a test, the first alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rankdrill.plugin import pytest_seam
from rankdrill.worlds.versions import Version

__all__ = ["LastingLogs"]


class LastingLogs:
    """Keeps pytest's handlers attached from when a phase first attached them until `release()`.

    Between phases they stay on loggers, but what is logged then they throw away.
    """

    def __init__(self) -> None:
        self._handlers: list[logging.Handler] = []
        self._loggers: list[logging.Logger] = []
        self._inside = 0
        self._once = self._looked = False
        self._known: dict[str, Any] = logging.getLogger().manager.loggerDict
        self._version = Version(self._known)
        self._all: list[logging.Logger] | None = None
        self._undo: Callable[[], None] | None = None

    def keep(self) -> None:
        """From now on attach handlers once."""
        if self._undo is None:
            self._undo = pytest_seam.attach_logs_by(self._catching)

    def begin_test(self, *, only_body: bool) -> None:
        """With `only_body` nothing of the user's runs in this test before its body, nor after it."""
        self._once, self._looked = only_body, False

    def release(self) -> None:
        """Take the handlers off: what comes now is no test's, and may ask whether anybody handles logs."""
        self._detach()
        self._handlers, self._loggers = [], []

    def close(self) -> None:
        """Release, and let pytest attach them itself again."""
        if self._undo is not None:
            self.release()
            self._undo()
            self._undo = None

    def _catching(self, handler: Any, level: int | None) -> _Attached:
        return _Attached(self, handler, level)

    def enter(self, handler: logging.Handler) -> None:
        """Have `handler` on the root logger and on all that do not propagate to it."""
        if handler not in self._handlers:
            self._detach()
            self._handlers.append(handler)
            self._attach()
        elif not self._inside and not (self._once and self._looked):  # of one phase's handlers the first looks for all
            self._look()
            self._looked = True
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1

    def _look(self) -> None:
        """See to it that all are still where they should be: a test may have set up logging anew."""
        if self._loggers != self._unheard() or not self._on_all():
            self._detach()
            self._attach()

    def _on_all(self) -> bool:
        ours, count = self._handlers, len(self._handlers)
        for logger in self._loggers:
            on = logger.handlers
            if on[-count:] != ours and not all(handler in on for handler in ours):
                return False
        return True

    def _unheard(self) -> list[logging.Logger]:
        """The root logger, and those whose records do not come to it."""
        if self._version.touched() or self._all is None:
            self._all = [one for one in self._known.values() if isinstance(one, logging.Logger)]
        return [logging.getLogger(), *[one for one in self._all if not one.propagate]]

    def _attach(self) -> None:
        self._loggers = self._unheard()
        for logger in self._loggers:
            for handler in self._handlers:
                logger.addHandler(handler)

    def _detach(self) -> None:
        for logger in self._loggers:
            for handler in self._handlers:
                logger.removeHandler(handler)


class _Attached:
    """What pytest enters for one phase."""

    def __init__(self, logs: LastingLogs, handler: Any, level: int | None) -> None:
        self._logs = logs
        self._handler = handler
        self._level = level
        self._level_before = logging.NOTSET

    def __enter__(self) -> Any:
        self._logs.enter(self._handler)
        if self._level is not None:
            root = logging.getLogger()
            self._handler.setLevel(self._level)
            self._level_before = root.level
            root.setLevel(min(root.level, self._level))
        return self._handler

    def __exit__(self, *raised: object) -> None:
        self._logs.leave()
        if self._level is not None:
            logging.getLogger().setLevel(self._level_before)
        self._handler.reset()  # the records of the phase are kept by their list
