"""How soon draws find the mistakes of hand-written gathers: rankdrill's beside `st.recursive` of basic types."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import hypothesis
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# As a script this file knows its own folder only; its parts lie in the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import machine
from benchmarks.planting import everydays, unusuals
from benchmarks.planting.mistake import MISTAKES, Mistake
from benchmarks.planting.on_ranks import ON_RANKS, search_on_ranks
from benchmarks.planting.search import DRAWS, EXAMPLES, OURS, Found, search
from benchmarks.planting.tables import counts, found_table

PLANTED = (everydays, unusuals)  # as they are imported

HELP = """How soon draws find the mistakes of hand-written gathers: picklables() of rankdrill_strategies, for mistakes
that take several ranks per_rank(picklables(), 2), beside st.recursive of None, booleans, numbers, text, bytes, lists,
dicts.

Each mistake is looked for anew with every seed. Told are the median of the examples to the first failure, of how many
seeds it was found by, the seconds it takes to find it once and shrink it, and what it shrinks to.

With --on-ranks each mistake is made by two ranks that gather for real, in a test marked ranks(2) whose payloads are
per_rank(picklables()): told are the examples that its ranks ran until it showed, and the seconds of the slowest seed
until pytest had the smallest, shrunk and explained.

\b
Examples:
  python benchmarks/finding.py                                   everything; a quarter of an hour on 2 cores
  python benchmarks/finding.py --only latin-1 --only "set becomes list" --seeds 5
  python benchmarks/finding.py --draw picklables --json found.json --check
  python benchmarks/finding.py --on-ranks --seeds 5              five sessions of pytest

\b
Mistakes; those of every day with a star:
"""
HELP += "".join(f"  {mistake.name}{' *' if mistake.everyday else ''}\n" for mistake in MISTAKES.values())


def _chosen(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[Mistake]:
    for part in given:
        if not any(part in name for name in MISTAKES):
            raise click.BadParameter(f"{part!r} is in the name of no mistake; --help lists them")
    return [each for name, each in MISTAKES.items() if not given or any(part in name for part in given)]


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--only", "mistakes", multiple=True, callback=_chosen, help="Those with this in their name; repeatable.")
@click.option("--draw", "draws", multiple=True, type=click.Choice(list(DRAWS)), help="Only by this; repeatable.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=20, show_default=True, help="Searches for each.")
@click.option("--limit", type=click.IntRange(10), default=EXAMPLES, show_default=True, help="Examples of a search.")
@click.option("--on-ranks", is_flag=True, help="On two ranks, through pytest, by per_rank(picklables()).")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every search.")
@click.option("--check", is_flag=True, help="Exit with 1 unless all but one mistake are found as soon as they should.")
def main(
    mistakes: list[Mistake],
    draws: tuple[str, ...],
    seeds: int,
    limit: int,
    on_ranks: bool,
    json_file: Path | None,
    check: bool,
) -> None:
    if on_ranks and draws:
        raise click.UsageError("--on-ranks draws by per_rank(picklables()); leave --draw out")
    found = (
        _on_ranks(mistakes, seeds, limit) if on_ranks else _search_all(mistakes, draws or tuple(DRAWS), seeds, limit)
    )
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(found_table(found))
    console.print(counts(found), highlight=False)
    if json_file:
        json_file.write_text(json.dumps(_as_json(found, seeds), indent=1) + "\n")
    late = [each.mistake for each in found if each.draw in (OURS, ON_RANKS) and not each.met]
    if check and len(late) > 1:
        raise SystemExit(1)


def _on_ranks(mistakes: Sequence[Mistake], seeds: int, limit: int) -> list[Found]:
    with _progress() as progress:
        task = progress.add_task("sessions", total=seeds)
        return search_on_ranks(mistakes, seeds, limit, lambda: progress.advance(task))


def _search_all(mistakes: Sequence[Mistake], draws: Sequence[str], seeds: int, limit: int) -> list[Found]:
    found = []
    with _progress() as progress:
        task = progress.add_task("", total=len(mistakes) * len(draws))
        for mistake in mistakes:
            for draw in draws:
                progress.update(task, description=f"{mistake.name}, by {draw}")
                found.append(search(mistake, draw, seeds, limit))
                progress.advance(task)
    return found


def _progress() -> Progress:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("[dim]{task.description}[/]"))
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _as_json(found: Sequence[Found], seeds: int) -> dict[str, object]:
    return {
        "machine": machine(hypothesis=hypothesis.__version__),
        "seeds": seeds,
        "found": [{**asdict(each), "median": each.median, "share": each.share, "met": each.met} for each in found],
    }


if __name__ == "__main__":
    main()
