"""The tables of the catalogue's score, and its list of what is not strictly right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.markup import escape
from rich.table import Table
from tests.catalogue.programs import KINDS
from tests.catalogue.scoring import Judged, Tally, tally

__all__ = ["by_kind", "misses", "overall"]

TEXT = 400  # letters of a verdict in the list


def overall(results: Mapping[str, Sequence[Judged]]) -> Table:
    """A line for each tool."""
    table = Table(title=_counts(next(iter(results.values()))))
    for column in ("", "recall", "specificity", "strict", "findings per mistake", "median seconds"):
        table.add_column(column, justify="left" if column == "" else "right")
    for tool, judged in results.items():
        figures = tally(judged)
        table.add_row(tool, *_shares(figures), _number(figures.findings), _number(figures.seconds))
    return table


def by_kind(results: Mapping[str, Sequence[Judged]]) -> Table:
    """A line for each kind of mistake: how many are noticed, and how many strictly right, by each tool."""
    table = Table()
    table.add_column("kind")
    table.add_column("programs", justify="right")
    for tool in results:
        table.add_column(f"{tool}: noticed", justify="right")
        table.add_column("strict", justify="right")
    for kind in KINDS:
        lines = {tool: [each for each in judged if _kind(each) == kind] for tool, judged in results.items()}
        programs = len(next(iter(lines.values())))
        if not programs:
            continue
        cells = [
            str(count)
            for judged in lines.values()
            for count in (sum(each.right for each in judged), sum(each.strict for each in judged))
        ]
        table.add_row(kind, str(programs), *cells)
    return table


def misses(judged: Sequence[Judged]) -> Iterator[str]:
    """What is not strictly right, with what was said: markup-free text, a paragraph each."""
    for kind in (*KINDS, None):
        for each in judged:
            if _kind(each) == kind and not (each.strict and each.right):
                yield f"{kind or 'correct'} · {each.program.name}: {_wrong(each)}"


def _wrong(judged: Judged) -> str:
    said, truth = judged.verdict, judged.program.truth
    if truth is None:
        return f"false alarm: {said.text[:TEXT]}"
    if not said.noticed:
        return "not noticed"
    expected = f"{truth.kind}, rank {sorted(truth.ranks)}, line {sorted(truth.lines)}"
    given = f"{said.kind or '-'}, rank {sorted(said.ranks)}, line {sorted(said.lines)}, {said.findings} findings"
    return (
        f"wrong in {', '.join(judged.wrong_in)} ({said.seconds:.1f} s)\n"
        f"    truth: {expected}\n    said:  {given}\n    {said.text[:TEXT]!r}"
    )


def _kind(judged: Judged) -> str | None:
    return judged.program.truth.kind if judged.program.truth is not None else None


def _counts(judged: Sequence[Judged]) -> str:
    figures = tally(judged)
    return escape(f"{figures.mistakes} programs with one mistake each, {figures.correct} correct ones")


def _shares(figures: Tally) -> tuple[str, ...]:
    return tuple(_number(share) for share in (figures.recall, figures.specificity, figures.strict))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
