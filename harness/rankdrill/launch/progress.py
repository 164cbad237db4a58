"""The live lines of a run: how far each rank is, what it is in, and how far it is behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rankdrill.diagnosis import name_ranks
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import DEFAULT_GROUP, NO_SEQUENCE, Kind

__all__ = ["MOST_LINES", "Progress", "doing_in"]

MOST_LINES = 12


class Progress:
    """Shown on `console` while entered, if that is a terminal; `look` takes what ranks have newest."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._began = time.monotonic()
        self._furthest: dict[int, int] = {}

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            # What ranks print goes above these lines, where both go to one screen.
            one_screen = sys.stdout.isatty()
            self._live = Live(console=self._console, transient=True, redirect_stdout=one_screen, redirect_stderr=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def look(self, ranks: Sequence[LedgerView]) -> None:
        """Show where `ranks` are, by their newest records."""
        if self._live is not None:
            self._live.update(self.lines(ranks), refresh=True)

    def lines(self, ranks: Sequence[LedgerView]) -> Table:
        """A line for each rank, or for each way to be where there are many."""
        for rank, view in enumerate(ranks):
            passed = [_number(record) for record in view.records]
            self._furthest[rank] = max([self._furthest.get(rank, NO_SEQUENCE), *passed])
        ahead = max(self._furthest.values(), default=NO_SEQUENCE)
        alike: dict[tuple[str, str], list[int]] = {}
        for rank, view in enumerate(ranks):
            missing = ahead - self._furthest[rank]
            alike.setdefault((doing_in(view), f"{missing} behind" if missing > 0 else ""), []).append(rank)
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(f"{time.monotonic() - self._began:.0f} s", style="dim"), "", "", "")
        for (doing, behind), those in list(alike.items())[:MOST_LINES]:
            steps = max(ranks[rank].first + len(ranks[rank].raw) for rank in those)
            table.add_row(
                Text(name_ranks(those)), Text(f"{steps} steps", style="dim"), Text(doing), Text(behind, style="yellow")
            )
        if len(alike) > MOST_LINES:
            table.add_row(Text(f"… and {len(alike) - MOST_LINES} other ways", style="dim"), "", "", "")
        return table


def _number(record: Record) -> int:
    step = record.step
    return step.sequence if step.kind is Kind.COLLECTIVE and step.target == DEFAULT_GROUP else NO_SEQUENCE


def doing_in(view: LedgerView) -> str:
    """The call that a rank is in, or the last that it came out of."""
    newest = view.last_open or view.last
    if newest is None:
        return "before its first step"
    return f"{'in' if newest.state.open else 'after'} {newest.step}{newest.step.where}"
