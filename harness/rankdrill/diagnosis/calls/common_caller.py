"""Two lines in different functions, seen from the one that called both: there it shows which comes first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from rankdrill.diagnosis.calls.source import function_around, is_in_a_loop
from rankdrill.step import Site

__all__ = ["from_one_function", "loops_below"]


def from_one_function(one: Site, other: Site) -> tuple[Site, Site]:
    """The two as lines of one function: their own, or that of a caller of theirs; as they are where there is none.

    A barrier in a helper, say, and an `all_reduce` of the training step that called the helper.
    """
    for mine in _outward(one):
        for theirs in _outward(other):
            function = function_around(mine)
            if function is not None and function is function_around(theirs) and mine.line != theirs.line:
                return mine, theirs
    return one, other


def loops_below(line: Site, site: Site) -> bool:
    """Whether what is called at `line`, and comes to `site` at last, may do so in a loop of its own."""
    return any(is_in_a_loop(each) for each in takewhile(lambda each: each is not line, _outward(site)))


def _outward(site: Site) -> Iterator[Site]:
    outer: Site | None = site
    while outer is not None:
        yield outer
        outer = outer.caller
