"""Whether a rank sets keys of a store that it has got before: only then need anybody ask whether updates were lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

__all__ = ["PAUSES_S", "Updates"]

MOST_KEYS = 1 << 12  # that are remembered, the newest
# Before a key is set that was got, so that what can come between does: in one run of a rank, the first for ranks that
# come out of a barrier at different times, and no more than these.
PAUSES_S = (0.04, 0.005, 0.005, 0.005)


class Updates:
    """Those of one rank in one run. Safe to use from several threads. `pauses` are in seconds."""

    def __init__(self, pauses: Sequence[float] = PAUSES_S) -> None:
        self._pauses = pauses
        self._changing = threading.Lock()
        self._got: dict[int, None] = {}
        self._count = 0

    def got(self, key: int) -> None:
        """The key with this digest was got."""
        with self._changing:
            if len(self._got) >= MOST_KEYS:
                del self._got[next(iter(self._got))]
            self._got[key] = None

    def about_to_set(self, key: int) -> None:
        """It is about to be set; a rank that has got it gives the others time to do the same."""
        with self._changing:
            if key not in self._got:
                return
            del self._got[key]
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
