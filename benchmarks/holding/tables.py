"""What was found, as tables and in the section of docs/conformance.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.holding.asking import Correct, Tried
from benchmarks.holding.population import Mutant
from rich.markup import escape
from rich.table import Table

from rankdrill.conformance import Promise

__all__ = ["BEGIN", "END", "Score", "list_of", "page_with", "score_table", "scores", "summary", "survivors", "untrue"]

BEGIN = "<!-- from here to the end mark written by benchmarks/conformance.py --document -->"
END = "<!-- end of the score -->"


@dataclass(frozen=True)
class Score:
    """Of one promise, or of all: how many mutants should break it, how many were found to, and what it took."""

    promise: str
    mutants: int
    killed: int
    seconds: float


def scores(tried: Sequence[Tried]) -> list[Score]:
    """A score for each promise that a mutant should break, then that of all."""
    found = []
    for promise in (*Promise, None):
        of_it = [each for each in tried if promise in (None, each.mutant.breaks)]
        if of_it:
            killed, seconds = sum(each.killed for each in of_it), sum(each.seconds for each in of_it)
            found.append(Score(promise or "all", len(of_it), killed, seconds))
    return found


def score_table(tried: Sequence[Tried]) -> Table:
    table = Table("promise")
    for head in ("mutants", "killed", "seconds"):
        table.add_column(head, justify="right")
    for each in scores(tried):
        table.add_row(each.promise, str(each.mutants), str(each.killed), f"{each.seconds:.0f}")
    return table


def survivors(tried: Sequence[Tried]) -> list[str]:
    """Each mutant that was not found, in two lines."""
    return [
        f"survived: {each.mutant.name}, through {', '.join(each.mutant.through)}: not found by {each.mutant.breaks}\n"
        f"  {each.mutant.mistake} ({each.mutant.file}); {each.said}"
        for each in tried
        if not each.killed
    ]


def untrue(correct: Sequence[Correct]) -> list[str]:
    """What was said against correct gathers, in a few lines each."""
    return [f"false: {each.adapter}: {finding}" for each in correct for finding in each.findings]


def summary(tried: Sequence[Tried], correct: Sequence[Correct]) -> str:
    """The last line: population, found, false, seconds."""
    killed, false = sum(each.killed for each in tried), sum(len(each.findings) for each in correct)
    asked = sum(each.answer.asked for each in correct)
    seconds = sum(each.seconds for each in tried) + sum(each.answer.seconds for each in correct)
    return (
        f"population {len(tried)}, found {killed}, "
        f"false {false} (of {asked} questions to {len(correct)} correct gathers), {seconds:.0f} seconds"
    )


def list_of(mutants: Sequence[Mutant]) -> Table:
    """The population."""
    table = Table("mutant", "file", "through", "breaks", "mistake")
    for each in mutants:
        table.add_row(each.name, each.file, ", ".join(each.through), str(each.breaks), escape(each.mistake))
    return table


def page_with(page: str, tried: Sequence[Tried], correct: Sequence[Correct]) -> str:
    """`page` with what is between its marks replaced by the score."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = ["| promise | mutants | killed | seconds |", "|---|---|---|---|"]
    lines += [f"| {each.promise} | {each.mutants} | {each.killed} | {each.seconds:.0f} |" for each in scores(tried)]
    false, asked = sum(len(each.findings) for each in correct), sum(each.answer.asked for each in correct)
    rounds = Counter(each.adapter for each in correct)
    least = min(rounds.values(), default=0)
    times = "once" if least == 1 else f"{least} times in a row"
    findings = "1 finding, which is false" if false == 1 else f"{false or 'no'} findings"
    said = (
        f"The correct ones, through {len(rounds)} adapters, asked everything {times} ({asked} questions): {findings}."
    )
    missed = [
        f"- {each.mutant.name} ({each.mutant.file}, `{each.mutant.breaks}`): {each.mutant.mistake}"
        for each in tried
        if not each.killed
    ]
    if missed:
        said += "\n\nNot found:\n\n" + "\n".join(missed)
    return f"{before}{BEGIN}\n\n{chr(10).join(lines)}\n\n{said}\n\n{END}{after}"
