"""How fast rankdrill's strategies draw, how big what they draw is, and whether Hypothesis finds them healthy."""

from __future__ import annotations

import json
import pickle
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import hypothesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# As a script this file knows its own folder only; its parts lie in the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import machine
from benchmarks.planting.search import DRAWS

from rankdrill_strategies import per_rank, picklables

RATE, TAIL = (
    600,
    64 << 10,
)  # examples a second of CPU by picklables(); bytes, the 99.9 % quantile where big is asked for
FIRST = 30  # examples of which Hypothesis judges a strategy's health by its first valid ten
OURS, BIG = "picklables()", "picklables(big=True)"
RANKS = 8
STRATEGIES: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "st.recursive of basic types": lambda: DRAWS["st.recursive"](1),
    OURS: picklables,
    BIG: lambda: picklables(big=True),
    f"per_rank({OURS}, {RANKS})": lambda: per_rank(picklables(), RANKS),
    f"per_rank({BIG}, {RANKS})": lambda: per_rank(picklables(big=True), RANKS),
}

HELP = """How fast rankdrill's strategies draw: examples a second of this process's CPU, beside st.recursive of None,
booleans, numbers, text, bytes, lists and dicts; how many bytes what they draw pickles to; and for how many of the
seeds one of Hypothesis's health checks fails, with its default settings. Of what is drawn for eight ranks there is an
eighth of the examples.

\b
Examples:
  python benchmarks/drawing.py                    a minute or so
  python benchmarks/drawing.py --check            exit code 1 where one of the goals is missed
  python benchmarks/drawing.py --examples 200 --seeds 2 --json drawn.json
"""


@dataclass(frozen=True)
class Drawn:
    """What came of one strategy. Sizes in bytes, pickled."""

    strategy: str
    rates: list[float]  # examples a second of CPU, for each round
    median: int
    most_but_1_in_100: int
    most_but_1_in_1000: int
    most: int
    unhealthy: list[str]  # what a health check said, for each seed with which one failed

    @property
    def rate(self) -> float:
        """In the middle of all rounds."""
        return statistics.median(self.rates)

    def missed(self) -> Iterator[str]:
        """Which goals it has and does not reach."""
        if self.strategy == OURS and self.rate < RATE:
            yield f"{self.strategy}: {self.rate:.0f} examples a second, of {RATE}"
        if self.strategy == BIG and self.most_but_1_in_1000 < TAIL:
            yield f"{self.strategy}: 99.9 % of {self.most_but_1_in_1000} bytes and less, of {TAIL}"
        for said in self.unhealthy:
            yield f"{self.strategy}: {said.splitlines()[0]}"


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--examples", type=click.IntRange(10), default=500, show_default=True, help="Of each round.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Side by side, all strategies.")
@click.option("--seeds", type=click.IntRange(0), default=10, show_default=True, help="To judge their health by.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write what was measured.")
@click.option("--check", is_flag=True, help="Exit with 1 unless every goal is reached.")
def main(examples: int, rounds: int, seeds: int, json_file: Path | None, check: bool) -> None:
    warnings.simplefilter("ignore")
    drawn = measure(examples, rounds, seeds)
    Console(width=None if sys.stdout.isatty() else 140).print(_table(drawn))
    if json_file:
        json_file.write_text(json.dumps(_as_json(drawn), indent=1) + "\n")
    missed = [goal for each in drawn for goal in each.missed()]
    for goal in missed:
        print(f"missed by {goal}")
    if check and missed:
        raise SystemExit(1)


def measure(examples: int, rounds: int, seeds: int) -> list[Drawn]:
    """Draw from every strategy in turn, `rounds` times `examples`, then the first few with each of `seeds`."""
    rates: dict[str, list[float]] = {name: [] for name in STRATEGIES}
    sizes: dict[str, list[int]] = {name: [] for name in STRATEGIES}
    unhealthy: dict[str, list[str]] = {name: [] for name in STRATEGIES}
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("[dim]{task.description}[/]"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=(rounds + 1) * len(STRATEGIES))
        for number in range(rounds):
            for name, strategy in STRATEGIES.items():
                progress.update(task, description=f"{name}, round {number + 1}")
                rates[name].append(_rate(strategy(), _share(name, examples), number))
                progress.advance(task)
        for name, strategy in STRATEGIES.items():
            progress.update(task, description=f"{name}, sizes and health")
            sizes[name] = _sizes(strategy(), _share(name, rounds * examples))
            unhealthy[name] = [said for number in range(seeds) for said in _unhealthy(strategy(), number)]
            progress.advance(task)
    return [_drawn(name, rates[name], sorted(sizes[name]), unhealthy[name]) for name in STRATEGIES]


def _share(name: str, examples: int) -> int:
    return max(10, examples // RANKS) if name.startswith("per_rank") else examples


def _draw_all(
    strategy: st.SearchStrategy[Any], examples: int, number: int, take: Callable[[Any], object], *, judged: bool = False
) -> None:
    left_out = [] if judged else list(HealthCheck)

    @seed(number)
    @settings(
        max_examples=examples, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=left_out
    )
    @given(strategy)
    def draw(value: Any) -> None:
        take(value)

    draw()


def _rate(strategy: st.SearchStrategy[Any], examples: int, number: int) -> float:
    began = time.process_time()
    _draw_all(strategy, examples, number, lambda value: None)
    return examples / (time.process_time() - began)


def _sizes(strategy: st.SearchStrategy[Any], examples: int) -> list[int]:
    found: list[int] = []
    _draw_all(strategy, examples, 0, lambda value: found.append(len(pickle.dumps(value))))
    return found


def _unhealthy(strategy: st.SearchStrategy[Any], number: int) -> Iterator[str]:
    try:
        _draw_all(strategy, FIRST, number, lambda value: None, judged=True)
    except FailedHealthCheck as error:
        yield str(error)


def _drawn(name: str, rates: list[float], sizes: list[int], unhealthy: list[str]) -> Drawn:
    median, hundredth, thousandth = (sizes[int(len(sizes) * share)] for share in (0.5, 0.99, 0.999))
    return Drawn(name, rates, median, hundredth, thousandth, sizes[-1], unhealthy)


def _table(drawn: list[Drawn]) -> Table:
    table = Table()
    table.add_column("strategy")
    for heading in ("examples a second of CPU", "bytes: median", "99 %", "99.9 %", "most", "unhealthy seeds"):
        table.add_column(heading, justify="right")
    for each in drawn:
        sizes = (each.median, each.most_but_1_in_100, each.most_but_1_in_1000, each.most)
        table.add_row(each.strategy, f"{each.rate:.0f}", *(f"{size:,}" for size in sizes), str(len(each.unhealthy)))
    return table


def _as_json(drawn: list[Drawn]) -> dict[str, object]:
    return {
        "machine": machine(hypothesis=hypothesis.__version__),
        "drawn": [asdict(each) | {"rate": each.rate} for each in drawn],
    }


if __name__ == "__main__":
    main()
