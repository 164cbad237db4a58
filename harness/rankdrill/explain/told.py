"""An explanation on a terminal: the root cause first, at most a screen, however many ranks there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from rankdrill.diagnosis import name_ranks
from rankdrill.explain.explanation import Cause, Explanation

__all__ = ["explained_lines", "harmless", "print_explanation"]

MOST_CAUSES = 2
MOST_SIDES = 4  # of a finding, beside the first; of a further one less
MOST_FITS = 3
MOST_PLACES = 6
MOST_GAPS = 5
MOST_RUNS = 5
_MOST_CHARACTERS = 600  # of a line
_OF_ANOTHER = "a fault of its own, which the first may have hidden"

_NO_MAJORITY = "nobody in the majority"

_Line = tuple[str, str]
"""Text and its style."""


def print_explanation(explanation: Explanation, console: Console) -> None:
    """Print it; what dumps say in it is shown as text, whatever characters that has."""
    for text, style in _lines(explanation, places=True):
        console.print(harmless(text), style=style or None, markup=False, soft_wrap=True)


def harmless(text: str) -> str:
    """`text` without what a terminal obeys, and no longer than one line may be."""
    shown = text[: _MOST_CHARACTERS + 1]
    if not shown.isprintable():
        escaped = (each.encode("unicode_escape").decode("ascii") for each in shown)
        shown = "".join(each if each.isprintable() else told for each, told in zip(shown, escaped, strict=True))
    return shown if len(shown) <= _MOST_CHARACTERS else shown[: _MOST_CHARACTERS - 1] + "…"


def explained_lines(explanation: Explanation) -> list[tuple[str, str]]:
    """The same, each line with its style, for who shows in another way where ranks are."""
    return list(_lines(explanation, places=False))


def _lines(explanation: Explanation, *, places: bool) -> Iterator[_Line]:
    if not explanation.causes:
        yield "nothing there shows which rank is at fault", "bold"
    for place, cause in enumerate(explanation.causes[:MOST_CAUSES]):
        if place:
            yield "", ""
            yield f"{_OF_ANOTHER}:", "bold"
        yield from _cause(cause, MOST_SIDES >> place)
    if len(explanation.causes) > MOST_CAUSES:
        yield f"… and {len(explanation.causes) - MOST_CAUSES} more causes, in --json", ""
    yield from _block("this fits too:", explanation.fits, MOST_FITS)
    if explanation.victims:
        yield "", ""
        yield f"victims: {name_ranks(explanation.victims)}", "bold"
    if places:
        there = sorted(explanation.places, key=lambda place: (place.ranks[0] not in explanation.culprits, place.ranks))
        yield from _block("where the ranks are:", [str(place) for place in there], MOST_PLACES)
    yield from _block("what was not there to judge by:", explanation.gaps, MOST_GAPS)
    yield from _block("of several runs that are recorded there, this is told of one:", explanation.runs, MOST_RUNS)


def _cause(cause: Cause, most: int) -> Iterator[_Line]:
    first, *others = cause.finding.lines
    if not cause.finding.culprits:  # of dumps majorities say less than of ledgers
        first = first.replace(_NO_MAJORITY, "nobody known to be at fault", 1)
    yield first, "bold red"
    yield from ((line, "") for line in _some(others, most))
    for place, why in enumerate(cause.why):
        yield (f"{cause.confidence}: {why}" if not place else f"  {why}"), "dim" if place else ""


def _block(heading: str, lines: Sequence[str], most: int) -> Iterator[_Line]:
    if lines:
        yield "", ""
        yield heading, "bold"
        yield from ((f"  {line}", "") for line in _some(lines, most))


def _some(lines: Sequence[str], most: int) -> Iterator[str]:
    yield from lines[:most]
    if len(lines) > most:
        yield f"… and {len(lines) - most} more, in --json"
