"""The table of docs/gathers.md: each way's milliseconds by payload, written by the benchmark that measured them."""

from __future__ import annotations

from benchmarks.gathering.results import Results
from benchmarks.gathering.tables import NONE, figure
from benchmarks.gathering.targets import Target, Verdict

__all__ = ["BEGIN", "END", "page_with", "table"]

BEGIN = "<!-- from here to the end mark written by benchmarks/gathers.py --document -->"
END = "<!-- end -->"
LARGEST = "64 MB"  # whose growth has a column
HEADS = {"rankdrill": "rankdrill", "torch": "torch", "original": "hand-written", "bare": "limits", "mpi": "MPI"}


def page_with(page: str, results: Results, found: list[Target]) -> str:
    """`page` with what is between its marks replaced by the table of `results`."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table(results)}\n{_reached(found)}\n\n{END}{after}"


def table(results: Results) -> str:
    """Markdown: a row for each way that was measured, a head for each family."""
    payloads = results.payloads()
    columns = [*payloads, f"memory, {LARGEST}"]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    family = ""
    for way in dict.fromkeys(cell.way for cell in results):
        cells = [results.find(way, payload) for payload in payloads]
        if all(cell is None or cell.missing for cell in cells):
            continue
        known = next(cell for cell in cells if cell is not None)
        if known.family != family:
            family = known.family
            lines.append(f"| **{HEADS[family]}** |{' |' * len(columns)}")
        figures = [figure(cell.ms if cell is not None else None) for cell in cells]
        growth = results.growth_of_arriving(way, LARGEST)
        memory = NONE if growth is None else f"{growth:.2f}"
        lines.append(f"| {known.name} | {' | '.join([*figures, memory])} |")
    return "\n".join(lines) + "\n"


def _reached(found: list[Target]) -> str:
    known = [target for target in found if target.verdict is not Verdict.UNKNOWN]
    missed = [target for target in known if target.verdict is Verdict.MISSED]
    if not missed:
        return f"All {len(known)} ratios that this benchmark is meant to reach were reached in this run."
    names = "; ".join(f"{target.what}, {target.payload}, beside {target.beside}" for target in missed)
    return f"Of the {len(known)} ratios that this benchmark is meant to reach, these were missed in this run: {names}."
