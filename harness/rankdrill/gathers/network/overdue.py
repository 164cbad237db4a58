"""Waiting no longer than a bound for what cannot be interrupted and knows no bound of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["within"]

T = TypeVar("T")


class _Errand(threading.Thread, Generic[T]):
    """A thread that nobody need wait for, and what came of it."""

    def __init__(self, action: Callable[[], T]) -> None:
        super().__init__(name="rankdrill: connecting", daemon=True)
        self._action: Callable[[], T] | None = action
        self.results: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Do it."""
        action, self._action = self._action, None
        assert action is not None
        try:
            self.results.append(action())
        except BaseException as error:  # it is raised where it was asked for
            self.error = error


def within(bound_s: float, action: Callable[[], T]) -> T:
    """What `action` returns or raises, if it does so within `bound_s` seconds; it is left to itself otherwise.

    Raises TimeoutError, and RuntimeError where no thread can be started.
    """
    errand = _Errand(action)
    errand.start()
    errand.join(bound_s)
    if errand.is_alive():
        raise TimeoutError(f"connecting took longer than {bound_s:.1f} s")
    error, errand.error = errand.error, None
    if error is not None:
        raise error
    return errand.results.pop()
