"""The ledgers of one world's ranks, as its controller reads them."""

from __future__ import annotations

from collections.abc import Iterable
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
        self._parts: dict[int, int] = {}

    def begin(self, *, anew: bool) -> None:
        """A run begins here, and if it is not the next part of a test, so does what its findings are about."""
        self._parts = {rank: reader.total for rank, reader in self._readers.items()}
        if anew:
            self._starts = self._parts

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

    def of_this_run(self, ranks: Iterable[int], faults: int) -> list[tuple[LedgerView, tuple[int, ...]]]:
        """What each rank wrote down in this run, and how often the plan's first `faults` faults struck on it."""
        readers = [(self.of(rank), self._parts.get(rank, 0)) for rank in ranks]
        return [reader.run(start, faults) if reader else (LedgerView(), ()) for reader, start in readers]

    def view(self, rank: int, start: int) -> LedgerView:
        """A copy of the records of `rank` from index `start` on."""
        reader = self.of(rank)
        return reader.view(start) if reader else LedgerView()

    def fired(self, rank: int, faults: int) -> tuple[int, ...]:
        """How often each of the plan's first `faults` faults has struck on `rank`."""
        reader = self.of(rank)
        return reader.fired(faults) if reader else ()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
