"""Numbers in a row, with the next one visible: `itertools.count` shows its own only when pickled, until Python 3.14."""

from __future__ import annotations

import threading

__all__ = ["Numbering"]


class Numbering:
    """From 0 on, each number taken once, whichever threads take them. `upcoming` is the one that comes next."""

    __slots__ = ("_lock", "upcoming")

    def __init__(self) -> None:
        self.upcoming = 0
        self._lock = threading.Lock()

    def take(self) -> int:
        """The next number."""
        with self._lock:
            number = self.upcoming
            self.upcoming = number + 1
        return number

    def give_back(self, number: int) -> None:
        """Have the next one who asks take `number` again, unless somebody has taken another since."""
        with self._lock:
            if self.upcoming == number + 1:
                self.upcoming = number
