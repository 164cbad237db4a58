"""The matrix of a drill: strikes down, paths across, one word in each cell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankdrill.conformance.case import NO_FAULT, Judgement
from rankdrill.report.tally import Cell, Tally

__all__ = ["LEGEND", "WORDS", "print_matrix"]

# Words, not signs: a newcomer must not need the legend, and colour must not be needed at all. Capitals are failures.
WORDS = {
    Judgement.RIGHT: "ok",
    Judgement.TOGETHER: "raised",
    Judgement.UNFIRED: "UNFIRED",
    Judgement.UNNAMED: "UNNAMED",
    Judgement.LEAKED: "LEAK",
    Judgement.SPENT: "SPENT",
    Judgement.ASYMMETRIC: "SPLIT",
    Judgement.DIED: "DIED",
    Judgement.HANG: "HANG",
    Judgement.WRONG: "WRONG",
    Judgement.BROKEN: "BROKEN",
}
LEGEND = {
    Judgement.RIGHT: "every rank received the right result",
    Judgement.TOGETHER: "every rank raised the same error, which names the rank that was struck",
    Judgement.UNFIRED: "the fault did not strike: nothing was tested",
    Judgement.UNNAMED: "every rank raised, but the error does not name the rank that was struck",
    Judgement.LEAKED: "files, segments, descriptors or random state left behind",
    Judgement.SPENT: "the next call did not work",
    Judgement.ASYMMETRIC: "asymmetric: some ranks raised, and others returned, hung or raised another type",
    Judgement.DIED: "a rank that was not struck died",
    Judgement.HANG: "ranks waited for ever",
    Judgement.WRONG: "a rank received a wrong result and nothing was raised",
    Judgement.BROKEN: "not a word on the gather: its adapter, or the drill, failed",
}
_STYLES = {Judgement.RIGHT: "green", Judgement.TOGETHER: "cyan"}
_FAILED = "bold red"
_LABEL_WIDTH = 14
_CELL_WIDTH = 9
_GAP = 1  # what the box puts between columns
_PARTS = re.compile(r"[/.]?(?:[A-Z]+(?![a-z])|[A-Z]?[^_/.A-Z]*)_*")


def print_matrix(tally: Tally, console: Console) -> None:
    """Print the matrix, in several parts where the terminal is too narrow for all paths, and the legend."""
    if not tally.results:
        return
    for paths in _fitting(tally.paths, console.width):
        console.print(_table(tally, paths))
    console.print(_legend(tally))


def _fitting(paths: Sequence[str], width: int) -> Iterator[Sequence[str]]:
    at_once = max(1, (width - _LABEL_WIDTH - 2) // (_CELL_WIDTH + _GAP))
    for start in range(0, len(paths), at_once):
        yield paths[start : start + at_once]


def _table(tally: Tally, paths: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("fault", width=_LABEL_WIDTH, vertical="bottom", no_wrap=True)
    for path in paths:
        table.add_column(Text(_heading(path)), width=_CELL_WIDTH, vertical="bottom", no_wrap=True)
    for strike in tally.strikes:
        label = "nothing" if strike == NO_FAULT else strike
        table.add_row(label, *(_cell(tally.cell(path, strike)) for path in paths))
    return table


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("·", style="dim")
    word = WORDS[cell.worst]
    if not cell.failures:
        return Text.assemble((f"{word:<6}", _STYLES[cell.worst]), (f"{cell.cases:>3}", "dim"))
    return Text(f"{word} {cell.failures}"[:_CELL_WIDTH], style=_FAILED)


def _heading(path: str) -> str:
    """A path's name broken into lines that fit: at underscores, slashes, dots and capitals."""
    lines = [""]
    for part in _PARTS.findall(path):
        if len(lines[-1]) + len(part) > _CELL_WIDTH or part.startswith(("/", ".")):
            lines.append("")
        lines[-1] += part
    return "\n".join(line[:_CELL_WIDTH] for line in lines if line)


def _legend(tally: Tally) -> Text:
    text = Text()
    for judgement, count in tally.counts.items():
        style = _STYLES.get(judgement, _FAILED)
        text.append(f"{WORDS[judgement]:<8}", style)
        text.append(f"{count:>5} case{'s' if count != 1 else ' '}  {LEGEND[judgement]}\n")
    if any(tally.cell(path, strike) is None for path in tally.paths for strike in tally.strikes):
        text.append("·                    the fault does not apply: the gather takes no such step\n", "dim")
    text.append(
        "Numbers count cases: ranks struck x world sizes x steps struck; of a failure, those that failed.", "dim"
    )
    return text
