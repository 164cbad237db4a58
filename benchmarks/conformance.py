"""Mutation score of the conformance kit: rankdrill's own gathers with one mistake each, and the correct ones."""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# As a script this file knows its own folder only; its parts lie in the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.holding.adapters import ADAPTERS
from benchmarks.holding.asking import Correct, Tried, ask_correct, try_mutant
from benchmarks.holding.copies import Copies
from benchmarks.holding.population import LEAST, Mutant, population, what_is_wrong_with
from benchmarks.holding.tables import BEGIN, END, list_of, page_with, score_table, summary, survivors, untrue

HELP = """How many mistakes in gathers the conformance kit finds, and how much it says against correct ones.

The population are rankdrill's own gathers with one mistake each, written down in benchmarks/holding/mutants. A mutant
is a private copy of the package with one text replaced, in a pytest process of its own that holds one gather to the one
promise that should break. It is killed where a question of that promise fails by the kit's own word; an error, a
timeout and a file that cannot be imported kill nothing. The correct gathers are held to every promise: each finding is
a false one.

Told are population, found, false and seconds; and each survivor, which is a hole of the kit.

\b
Examples:
  python benchmarks/conformance.py                           everything; half an hour on 2 cores
  python benchmarks/conformance.py --list                    the mutants, and what is wrong with each
  python benchmarks/conformance.py --only NFSWorkspace       what is asked through one gather
  python benchmarks/conformance.py --only "umask left" --rounds 0
  python benchmarks/conformance.py --no-mutants --rounds 20  correct gathers alone, 20 times in a row
  python benchmarks/conformance.py --check --document docs/conformance.md --json score.json
"""


def _chosen(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> list[Mutant]:
    everything = population()
    for part in given:
        if not any(_is_meant(part, each) for each in everything):
            raise click.BadParameter(f"{part!r} is in no mutant's name, file, adapter or promise; --list has them")
    return [each for each in everything if not given or any(_is_meant(part, each) for part in given)]


def _is_meant(part: str, mutant: Mutant) -> bool:
    return part in mutant.name or part in mutant.file or part in mutant.through or part == mutant.breaks


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--only", "mutants", metavar="NAME", multiple=True, callback=_chosen,
              help="Mutants with this in their name or file, or that adapter or promise, and the correct gathers "
              "behind them; repeatable.")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="Print the population and run nothing.")
@click.option("--mutants/--no-mutants", "tries", default=True, help="Whether mutants are tried at all.")
@click.option("--rounds", type=click.IntRange(0, 1000), default=1, show_default=True, help="Of the correct gathers.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write every answer.")
@click.option("--document", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Write the score there.")
@click.option("--check", is_flag=True, help="Exit with 1 for a survivor, a false finding or too small a population.")
def main(
    mutants: list[Mutant],
    listing: bool,
    tries: bool,
    rounds: int,
    json_file: Path | None,
    document: Path | None,
    check: bool,
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    if listing:
        console.print(list_of(mutants))
        return
    if refused := [wrong for each in mutants if (wrong := what_is_wrong_with(each))]:
        raise click.ClickException("\n".join(refused))
    if document and (BEGIN not in document.read_text() or END not in document.read_text()):
        raise click.UsageError(f"{document} has no place for the score: mark it by {BEGIN!r} and {END!r}")
    behind = {name for each in mutants for name in each.through}
    names = list(ADAPTERS) if len(mutants) == len(population()) else [name for name in ADAPTERS if name in behind]
    tried, correct = _run(mutants if tries else [], names, rounds)
    if tried:
        console.print(score_table(tried))
    for line in (*survivors(tried), *untrue(correct)):
        console.print(line, markup=False, highlight=False)
    console.print(summary(tried, correct), highlight=False)
    if json_file:
        json_file.write_text(json.dumps(_as_json(tried, correct, rounds), indent=1) + "\n")
    if document:
        document.write_text(page_with(document.read_text(), tried, correct, rounds))
    if check and (survivors(tried) or untrue(correct) or len(population()) < LEAST):
        raise SystemExit(1)


def _run(mutants: Sequence[Mutant], names: Sequence[str], rounds: int) -> tuple[list[Tried], list[Correct]]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("[dim]{task.description}[/]"))
    tried, correct = [], []
    with (
        tempfile.TemporaryDirectory(prefix="rankdrill-mutants-") as scratch,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        copies = Copies(Path(scratch))
        task = progress.add_task("", total=len(mutants) + rounds * len(names))
        for mutant in mutants:
            progress.update(task, description=f"{mutant.name}, through {mutant.through[0]}")
            tried.append(try_mutant(copies, mutant))
            progress.advance(task)
        for round_ in range(rounds):
            for name in names:
                progress.update(task, description=f"the correct {name}, round {round_ + 1} of {rounds}")
                correct.append(ask_correct(copies, name))
                progress.advance(task)
    return tried, correct


def _as_json(tried: Sequence[Tried], correct: Sequence[Correct], rounds: int) -> dict[str, Any]:
    return {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "load": os.getloadavg(),  # who else was there
        },
        "rounds": rounds,
        "mutants": [{**asdict(each), "killed": each.killed, "said": each.said} for each in tried],
        "correct": [{**asdict(each), "findings": each.findings} for each in correct],
    }


if __name__ == "__main__":
    main()
