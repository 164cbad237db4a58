"""The tables: one per payload, and one of the targets."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gathering.payloads import MB, PAYLOADS
from benchmarks.gathering.results import Cell, Results
from benchmarks.gathering.targets import OBJECTS, Target, Verdict
from rich.table import Table
from rich.text import Text

COPIES = "copies"
NONE = "–"  # noqa: RUF001 (a dash in a table)
COLUMNS = ("median ms", "× copy limit", "× all_gather_object", "CPU s", "growth MB", "× what arrives", "n")  # noqa: RUF001
WAY_WIDTH, WHY_WIDTH = 44, 200
COLOURS = {Verdict.OK: "green", Verdict.MISSED: "bold red", Verdict.UNKNOWN: "dim"}


def payload_table(results: Results, payload_key: str) -> Table:
    """Every way with one payload, by families."""
    payload = PAYLOADS[payload_key]
    arriving = payload.arriving(results.size)
    each = f"{amount(payload.rest)} on every rank"
    if not payload.equal:
        each = f"{amount(payload.first)} on rank 0, {amount(payload.rest)} on the others"
    title = f"{payload_key}: {results.size} ranks, {each}; {amount(arriving)} arrive"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("way", min_width=WAY_WIDTH)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    family = ""
    for cell in results.of(payload_key):
        if cell.family != family:
            family = cell.family
            table.add_section()
            table.add_row(Text(family, style="bold cyan"))
        if cell.missing:
            table.add_row(_why_missing(cell))
        else:
            table.add_row(f"  {cell.name}", *_figures(results, cell))
    return table


def _why_missing(cell: Cell) -> Text:
    why = cell.missing if len(cell.missing) <= WHY_WIDTH else f"{cell.missing[:WHY_WIDTH]}…"
    return Text(f"  {cell.name}: {why}", style="red" if cell.broken else "dim")


def _figures(results: Results, cell: Cell) -> Sequence[str]:
    growth = None if cell.growth is None else cell.growth / MB
    return (
        figure(cell.ms),
        figure(results.slowdown(cell.way, COPIES, cell.payload)),
        figure(results.slowdown(cell.way, OBJECTS, cell.payload)),
        figure(cell.cpu_s),
        figure(growth),
        figure(results.growth_of_arriving(cell.way, cell.payload)),
        str(len(cell.repetitions)),
    )


def target_table(found: Sequence[Target], size: int) -> Table:
    """Each target of a world of `size` ranks: met, missed, or why that is not known."""
    table = Table(title=f"targets, {size} ranks", title_justify="left", title_style="bold")
    for column in ("way", "payload", "beside", "wanted", "measured", ""):
        table.add_column(column, justify="right" if column in ("wanted", "measured") else "left")
    for target in found:
        sign, unit = ("≥", f"{target.unit} faster") if target.inverse else ("≤", target.unit)
        table.add_row(
            target.what,
            target.payload,
            target.beside,
            f"{sign} {target.wanted:g} {unit}",
            NONE if target.measured is None else f"{target.measured:.4g}",  # 1.003 is above 1
            Text(target.verdict, style=COLOURS[target.verdict]),
        )
    return table


def figure(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return NONE
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
    return f"{value:,.{digits}f}".replace(",", " ")


def amount(count: int) -> str:
    if count >= MB:
        return f"{count / MB:.4g} MB"
    return f"{count / 1000:g} kB" if count >= 1000 else f"{count} B"
