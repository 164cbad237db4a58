"""Whether a rank sets keys of a store that it has got before, or writes files that it has read: only then need anybody
ask whether updates were lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

__all__ = ["FILE_PAUSES_S", "PAUSES_S", "Updates"]

MOST_KEYS = 1 << 12  # that are remembered, the newest
# Before a key is set that was got, so that what can come between does: in one run of a rank, the first for ranks that
# come out of a barrier at different times, and no more than these.
PAUSES_S = (0.04, 0.005, 0.005, 0.005)
FILE_PAUSES_S = (0.04,)
"""The same before a file is written that was read."""


class Updates:
    """Those of one rank in one run, of keys or of files by the digests of their paths.

    Safe to use from several threads. `pauses` are in seconds.
    """

    def __init__(self, pauses: Sequence[float] = PAUSES_S) -> None:
        self._pauses = pauses
        self._changing = threading.Lock()
        self._got: dict[int, None] = {}
        self._count = 0

    def got(self, *keys: int) -> None:
        """The keys with these digests were got."""
        with self._changing:
            for key in keys:
                if len(self._got) >= MOST_KEYS:
                    del self._got[next(iter(self._got))]
                self._got[key] = None

    def about_to_set(self, *keys: int) -> None:
        """They are about to be set; a rank that has got one of them gives the others time to do the same."""
        with self._changing:
            known = [key for key in keys if key in self._got]
            if not known:
                return
            for key in known:
                self._got.pop(key, None)
            pause = self._pauses[self._count] if self._count < len(self._pauses) else 0.0
            self._count += 1
        if pause:
            time.sleep(pause)

    def take(self) -> int:
        """How many there were since the last time."""
        with self._changing:
            count, self._count = self._count, 0
            self._got.clear()
        return count
