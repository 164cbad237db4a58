"""Numbers in a row, with the next one visible, and sums, both for any threads.

`itertools.count` shows its next number only when pickled, until Python 3.14.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from rankdrill.native import hot

__all__ = ["Numbering", "PlainNumbering", "Tally", "numbering"]


class Numbering(Protocol):
    """From 0 on, each number taken once, whichever threads take them. `upcoming` is the one that comes next."""

    @property
    def upcoming(self) -> int: ...

    def take(self) -> int:
        """The next number."""

    def give_back(self, number: int) -> None:
        """Have the next one who asks take `number` again, unless somebody has taken another since."""

    def go_to(self, number: int) -> None:
        """Go on with `number`."""


class PlainNumbering:
    """A `Numbering` in Python."""

    __slots__ = ("_lock", "upcoming")

    def __init__(self) -> None:
        self.upcoming = 0
        self._lock = threading.Lock()

    def take(self) -> int:
        with self._lock:
            number = self.upcoming
            self.upcoming = number + 1
        return number

    def give_back(self, number: int) -> None:
        with self._lock:
            if self.upcoming == number + 1:
                self.upcoming = number

    def go_to(self, number: int) -> None:
        with self._lock:
            self.upcoming = number


numbering: Callable[[], Numbering] = PlainNumbering if hot is None else hot.Numbering
"""One that begins, in C if there is one."""


class Tally:
    """A sum that threads add to, modulo 2⁶⁴."""

    __slots__ = ("_lock", "total")

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.total = (self.total + number) & 0xFFFFFFFFFFFFFFFF
