"""Where ranks are, told while they run: for whoever shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from rankdrill.ledger import LedgerView
from rankdrill.worlds.processes.ledgers import Ledgers

__all__ = ["Look", "Looks"]

Look: TypeAlias = Callable[[Sequence[LedgerView]], None]
"""Is given the newest records of each rank, by rank."""

EVERY_S = 0.2
NEWEST = 16  # records: a rank that is in a collective may have other steps after it


class Looks:
    """Calls `look` every now and then while it is pumped."""

    def __init__(self, ledgers: Ledgers, ranks: int, look: Look) -> None:
        self._ledgers = ledgers
        self._ranks = range(ranks)
        self._look = look
        self._next = time.monotonic() + EVERY_S

    def pump(self, *, final: bool = False) -> None:
        """Call `look` if it is time, or this is the last time."""
        if not final and time.monotonic() < self._next:
            return
        totals = [self._ledgers.total(rank) for rank in self._ranks]
        self._look([self._ledgers.view(rank, max(totals[rank] - NEWEST, 0)) for rank in self._ranks])
        self._next = time.monotonic() + EVERY_S
