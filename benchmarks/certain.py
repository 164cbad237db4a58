"""How long after a hang has become certain its run is over, and told: by kind of hang and by size of the world."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# As a script this file knows its own folder only; its parts lie in the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.hanging.bodies import BODIES
from benchmarks.machine import machine

from rankdrill import World
from rankdrill.worlds import Outcome
from rankdrill.worlds.job import Job

DEADLINE_S = 60.0
HELP = """How long after a hang has become certain its run is over, and told.

A hang is certain with the last step that one of its ranks begins, or with the return of the last one that returns,
whichever is later; both are read off the machine's monotonic clock. From there it takes two looks that agree, the end
of the ranks, and the diagnosis. Told are the median, the 95th percentile and the longest, in ms.

\b
Examples:
  python benchmarks/certain.py                            everything, in worlds of 2, 4 and 16 ranks
  python benchmarks/certain.py --ranks 4 --rounds 50 --at-most 200
  python benchmarks/certain.py --only computes --json certain.json

\b
Hangs:
"""
HELP += "".join(f"  {name}\n" for name in BODIES)


@dataclass(frozen=True)
class Measured:
    """Milliseconds from the moment at which a hang was certain to the verdict, of each round."""

    hang: str
    ranks: int
    told: str
    took_ms: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.took_ms)

    @property
    def late(self) -> float:
        """The 95th percentile."""
        return sorted(self.took_ms)[round(0.95 * (len(self.took_ms) - 1))]


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--only", "parts", multiple=True, help="Those with this in their name; repeatable.")
@click.option("--ranks", "sizes", type=click.IntRange(2, 64), multiple=True, default=(2, 4, 16), show_default=True)
@click.option("--rounds", type=click.IntRange(1, 1000), default=20, show_default=True, help="Of each.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every round.")
@click.option("--at-most", type=click.FloatRange(min=0), help="Exit with 1 if a 95th percentile is over so many ms.")
def main(
    parts: tuple[str, ...], sizes: tuple[int, ...], rounds: int, json_file: Path | None, at_most: float | None
) -> None:
    chosen = [name for name in BODIES if not parts or any(part in name for part in parts)]
    if not chosen:
        raise click.BadParameter(f"{', '.join(parts)} is in the name of no hang; --help lists them")
    found = _measure_all(chosen, sizes, rounds)
    Console(width=None if sys.stdout.isatty() else 140).print(_table(found))
    if json_file:
        told = {"machine": machine(torch=torch.__version__), "rounds": [asdict(each) for each in found]}
        json_file.write_text(json.dumps(told, indent=1) + "\n")
    if at_most is not None and any(each.late > at_most for each in found):
        raise SystemExit(1)


def _measure_all(names: Sequence[str], sizes: Sequence[int], rounds: int) -> list[Measured]:
    found = []
    todo = [(size, name) for size in sizes for name in names if BODIES[name][1] <= size]
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("[dim]{task.description}[/]"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(todo) * rounds)
        for size, name in todo:
            progress.update(task, description=f"{name}, {size} ranks")
            with World(size) as world:
                times, told = [], ""
                for _ in range(rounds):
                    outcome, took_ms = _once(world, name)
                    times.append(took_ms)
                    told = ", ".join(sorted({str(finding.kind) for finding in outcome.findings})) or "nothing"
                    progress.advance(task)
                found.append(Measured(name, size, told, tuple(times)))
    return found


def _once(world: World, name: str) -> tuple[Outcome, float]:
    outcome = world.run_job(Job(BODIES[name][0], with_context=True), deadline=DEADLINE_S)
    outcome.summary()
    over_ns = time.monotonic_ns()
    steps = [last.begin_ns for rank in outcome.ranks if (last := rank.ledger.last) is not None]
    returned = [rank.value for rank in outcome.ranks if isinstance(rank.value, int)]
    return outcome, (over_ns - max(steps + returned)) / 1e6


def _table(found: Sequence[Measured]) -> Table:
    table = Table(title="milliseconds from the moment at which a hang was certain to the verdict")
    table.add_column("hang")
    table.add_column("told as")
    for column in ("ranks", "median", "95 %", "longest"):
        table.add_column(column, justify="right")
    for each in found:
        figures = (f"{value:.0f}" for value in (each.median, each.late, max(each.took_ms)))
        table.add_row(each.hang, each.told, str(each.ranks), *figures)
    return table


if __name__ == "__main__":
    main()
