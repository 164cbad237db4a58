"""Whether the ranks' contracts were found broken, and what is wrong, as the rank that noticed wrote it down."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

from rankdrill.diagnosis import Finding, FindingKind, each_for_itself
from rankdrill.ledger import Board, make_board

__all__ = ["BOARD", "Breaks", "write_finding"]

BOARD = "board"
_FINDING = "rank-{}.finding"


def write_finding(directory: Path, rank: int, finding: Finding | None) -> None:
    """On `rank`: leave what it found for the controller, or take it back."""
    path = directory / _FINDING.format(rank)
    if finding is None:
        path.unlink(missing_ok=True)
        return
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(finding, pickle.HIGHEST_PROTOCOL))
    part.rename(path)


class Breaks:
    """The board of `n` ranks in `directory`, as their controller sees it."""

    def __init__(self, directory: Path, n: int) -> None:
        self._directory = directory
        self._ranks = range(n)
        make_board(directory / BOARD, n)
        self._board = Board(directory / BOARD)

    def begin(self, *, anew: bool) -> None:
        """A run begins; if it is `anew`, and not the next part of a test, what the one before came to is forgotten."""
        if not anew:
            return
        if self._board.noted:
            for rank in self._ranks:
                (self._directory / _FINDING.format(rank)).unlink(missing_ok=True)
        self._board.begin_run()

    @property
    def noticed_by(self) -> int | None:
        """The rank that found the contracts broken, if any did."""
        broken = self._board.broken
        return broken.rank if broken is not None else None

    def finding(self) -> Finding | None:
        """What is wrong; of several ranks that noticed, what one says that knows who is at fault.

        What ranks did wrong each by itself is put together, where it is all there is.
        """
        if not self._board.noted:
            return None
        found = [finding for rank in self._ranks if (finding := self._read(rank)) is not None]
        own = each_for_itself(found)
        of_all = [finding for finding in found if own is None or finding.kind is not own.kind]
        # Who has looked ahead knows more than whether tensors fit.
        of_all.sort(key=lambda finding: (not finding.culprits, finding.kind is not FindingKind.CALL_ORDERING))
        return next(iter(of_all), own)

    def _read(self, rank: int) -> Finding | None:
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            finding = pickle.loads((self._directory / _FINDING.format(rank)).read_bytes())
            return finding if isinstance(finding, Finding) else None
        return None

    def close(self) -> None:
        self._board.close()
