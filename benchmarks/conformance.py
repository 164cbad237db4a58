"""Mutation score of the conformance kit: rankdrill's own gathers with one mistake each, and the correct ones."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# As a script this file knows its own folder only; its parts lie in the one above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.holding.adapters import ADAPTERS
from benchmarks.holding.asking import ask_correct, try_mutant
from benchmarks.holding.copies import Copies
from benchmarks.holding.population import LEAST, Mutant, population, what_is_wrong_with
from benchmarks.holding.record import Record
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
  python benchmarks/conformance.py --json score.json --again goes on where that run was interrupted
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
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Keep every answer there.")
@click.option("--again", is_flag=True, help="Do not ask again what --json has an answer to.")
@click.option("--document", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Write the score there.")
@click.option("--check", is_flag=True, help="Exit with 1 for a survivor, a false finding or too small a population.")
def main(
    mutants: list[Mutant],
    listing: bool,
    tries: bool,
    rounds: int,
    json_file: Path | None,
    again: bool,
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
    record = Record(json_file, mutants, again=again)
    _run(mutants if tries else [], names, rounds, record)
    tried, correct = record.tried, record.correct
    if tried:
        console.print(score_table(tried))
    for line in (*survivors(tried), *untrue(correct)):
        console.print(line, markup=False, highlight=False)
    console.print(summary(tried, correct), highlight=False)
    if document:
        document.write_text(page_with(document.read_text(), tried, correct))
    if check and (survivors(tried) or untrue(correct) or len(population()) < LEAST):
        raise SystemExit(1)


def _run(mutants: Sequence[Mutant], names: Sequence[str], rounds: int, record: Record) -> None:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("[dim]{task.description}[/]"))
    left = [mutant for mutant in mutants if not record.has(mutant)]
    asked = [name for round_ in range(rounds) for name in names if record.rounds_of(name) <= round_]
    with (
        tempfile.TemporaryDirectory(prefix="rankdrill-mutants-") as scratch,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        copies = Copies(Path(scratch))
        task = progress.add_task("", total=len(left) + len(asked))
        for mutant in left:
            progress.update(task, description=f"{mutant.name}, through {mutant.through[0]}")
            tried = try_mutant(copies, mutant)
            record.add(tried)
            _tell(progress, f"{'killed' if tried.killed else 'SURVIVED'} {mutant.name}", tried.seconds)
            progress.advance(task)
        for name in asked:
            progress.update(task, description=f"the correct {name}")
            correct = ask_correct(copies, name)
            record.add(correct)
            _tell(progress, f"{len(correct.findings)} findings in the correct {name}", correct.answer.seconds)
            progress.advance(task)


def _tell(progress: Progress, what: str, seconds: float) -> None:
    """Say it in a line where there is no terminal for a bar."""
    if not progress.console.is_terminal:
        progress.console.print(f"{what}, {seconds:.1f} s", highlight=False, markup=False)


if __name__ == "__main__":
    main()
