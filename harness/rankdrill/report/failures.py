"""The failures of a drill in full, each with the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from rankdrill.conformance.case import CaseResult
from rankdrill.report.matrix import LEGEND
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
        console.print(_in_full(number, alike[0]), soft_wrap=True)
        if len(alike) > 1:
            console.print(_others(alike[1:]), soft_wrap=True)


def _in_full(number: int, result: CaseResult) -> Text:
    case = result.case
    text = Text()
    text.append(f"{number}. {result.judgement.upper()}", "bold red")
    text.append(f"  {case.path}", "bold")
    text.append(f" · {case.name}\n")
    text.append(f"   {LEGEND[result.judgement]}: ", "dim")
    text.append(f"{result.why}\n")
    for line in result.ranks:
        text.append(f"   {line}\n")
    for item in result.evidence:
        for line in _shortened(item):
            text.append(f"     {line}\n", "dim")
    text.append("   again: ", "dim")
    text.append(case.repeat, "yellow")
    return text


def _others(results: list[CaseResult]) -> Text:
    text = Text()
    text.append(f"   {len(results)} more of this kind:", "dim")
    for result in results:
        text.append("\n     ")
        text.append(result.case.repeat, "yellow")
    return text


def _shortened(evidence: str) -> Iterable[str]:
    lines = evidence.splitlines()
    yield from lines[:_STACK_LINES]
    if len(lines) > _STACK_LINES:
        yield f"… {len(lines) - _STACK_LINES} lines more in --json"
