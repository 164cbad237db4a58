"""What was found, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.planting.on_ranks import ON_RANKS
from benchmarks.planting.search import OURS, Found
from rich.markup import escape
from rich.table import Table

__all__ = ["counts", "found_table"]

_CHARACTERS = 44  # of what it shrinks to


def found_table(found: Sequence[Found]) -> Table:
    """A line for each mistake: by each draw, examples to the first failure, seconds to the smallest, and what it is."""
    draws = list(dict.fromkeys(each.draw for each in found))
    table = Table()
    table.add_column("mistake")
    for draw in draws:
        table.add_column(f"{draw}: examples", justify="right")
        table.add_column("found", justify="right")
        table.add_column("seconds", justify="right")
    table.add_column("shrunk to")
    for name in dict.fromkeys(each.mistake for each in found):
        lines = {each.draw: each for each in found if each.mistake == name}
        cells = [cell for draw in draws for cell in _cells(lines[draw])]
        one = lines.get(OURS) or next(iter(lines.values()))
        table.add_row(name + (" *" if one.everyday else ""), *cells, escape(_short(one.smallest)))
    return table


def counts(found: Sequence[Found]) -> str:
    """How many of ours were found soon enough."""
    ours = [each for each in found if each.draw in (OURS, ON_RANKS)]
    said = []
    for everyday, kind in ((True, "everyday mistakes (*)"), (False, "other mistakes")):
        of_kind = [each for each in ours if each.everyday is everyday]
        if of_kind:
            met = sum(each.met for each in of_kind)
            said.append(f"{met} of {len(of_kind)} {kind} found in at most {of_kind[0].goal} examples and 10 seconds")
    return "\n".join(said)


def _cells(found: Found) -> tuple[str, str, str]:
    median = "-" if found.median is None else f"{found.median:g}"
    return median, f"{found.share:.0%}", f"{found.seconds:.1f}" if found.smallest else "-"


def _short(code: str) -> str:
    code = " ".join(code.split())
    return code if len(code) <= _CHARACTERS else f"{code[: _CHARACTERS - 3]}..."
