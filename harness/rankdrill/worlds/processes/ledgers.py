"""The ledgers of one world's ranks, as its controller reads them."""

from __future__ import annotations

from pathlib import Path

from rankdrill.errors import LedgerError
from rankdrill.ledger import LedgerReader, LedgerView

__all__ = ["Ledgers"]


class Ledgers:
    """Opens each rank's ledger when it is first there, and keeps it open as long as the world lives."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readers: dict[int, LedgerReader] = {}
        self._starts: dict[int, int] = {}

    def begin(self) -> None:
        """A run, or the first part of a test, begins: what ranks write from here on belongs to it."""
        self._starts = {rank: reader.total for rank, reader in self._readers.items()}

    def start(self, rank: int) -> int:
        """The index of the first record of `rank` in this run."""
        return self._starts.get(rank, 0)

    def of(self, rank: int) -> LedgerReader | None:
        """The ledger of `rank`, or None where it has none yet: it is starting, or ended before it had one."""
        if rank not in self._readers:
            try:
                self._readers[rank] = LedgerReader(self._directory / f"rank-{rank}.ledger")
            except (FileNotFoundError, LedgerError):  # not made yet, or just being made
                return None
        return self._readers[rank]

    def total(self, rank: int) -> int:
        """How many steps `rank` has begun."""
        reader = self.of(rank)
        return reader.total if reader else 0

    def view(self, rank: int, start: int) -> LedgerView:
        """A copy of the records of `rank` from index `start` on."""
        reader = self.of(rank)
        return reader.view(start) if reader else LedgerView((), 0)

    def fired(self, rank: int, faults: int) -> tuple[int, ...]:
        """How often each of the plan's first `faults` faults has struck on `rank`."""
        reader = self.of(rank)
        return reader.fired(faults) if reader else ()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
