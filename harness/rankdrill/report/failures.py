"""The failures of a drill in full, each with the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from rankdrill.conformance.case import CaseResult
from rankdrill.report.matrix import LEGEND, WORDS
from rankdrill.report.tally import Tally

__all__ = ["print_failures"]

_STACK_LINES = 25


def print_failures(tally: Tally, console: Console) -> None:
    """Print one failure of each kind (path, strike, judgement) in full, and how to repeat the others of its kind."""
    groups: dict[tuple[str, str, str], list[CaseResult]] = {}
    for result in tally.failures:
        groups.setdefault((result.case.path, result.case.strike, result.judgement), []).append(result)
    for number, alike in enumerate(groups.values(), 1):
        console.print()
        for line in _in_full(number, alike[0]):
            # Wrapped on a terminal only: in a file, lines must be found whole.
            console.print(line, soft_wrap=not console.is_terminal)
        console.print(_commands(alike), soft_wrap=True)


def _in_full(number: int, result: CaseResult) -> Iterator[Text]:
    case = result.case
    head = (f"{number}. {WORDS[result.judgement]}", "bold red")
    yield Text.assemble(head, (f"  {case.path}", "bold"), f" · {case.name}")
    yield Text.assemble((f"{LEGEND[result.judgement]}", "dim"), _reason(result))
    for line in result.ranks:
        yield Text(line)
    for item in result.evidence:
        for line in _shortened(item):
            yield Text(f"  {line}", "dim")


def _reason(result: CaseResult) -> str:
    # Often it is what the ranks saw, which follows anyway.
    said = all(part in " ".join(result.ranks) for part in result.why.split("; "))
    return "" if said else f": {result.why}"


def _commands(results: Sequence[CaseResult]) -> Text:
    # Never wrapped by us: a command must survive being copied.
    text = Text.assemble(("again: ", "dim"), (results[0].case.repeat, "yellow"))
    if len(results) > 1:
        text.append(f"\n{len(results) - 1} more of this kind:", "dim")
    for result in results[1:]:
        text.append("\n  ")
        text.append(result.case.repeat, "yellow")
    return text


def _shortened(evidence: str) -> Iterable[str]:
    lines = evidence.splitlines()
    yield from lines[:_STACK_LINES]
    if len(lines) > _STACK_LINES:
        yield f"… {len(lines) - _STACK_LINES} lines more in --json"
