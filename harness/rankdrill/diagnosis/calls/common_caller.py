"""Two lines in different functions, seen from the one that called both: there it shows which comes first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, takewhile

from rankdrill.diagnosis.calls.loops import (
    is_in_a_comprehension,
    is_in_a_loop,
    is_in_a_loop_without,
    is_in_turn,
    share_a_loop,
)
from rankdrill.diagnosis.calls.source import LEAVES_WITH, is_besides, is_for_some_ranks, leaves_a_with, waits_between
from rankdrill.diagnosis.calls.tree import function_around
from rankdrill.site import Site, one_call, outward
from rankdrill.step import HANDED_OVER

__all__ = [
    "come_round",
    "comes_round_without",
    "from_one_function",
    "in_any_loop",
    "in_turn_by_one_line",
    "loops_below",
    "only_some_come",
    "some_come_besides",
]


def from_one_function(one: Site, other: Site) -> tuple[Site, Site]:
    """The two as lines of one function: their own, or that of a caller of theirs; as they are where there is none.

    A barrier in a helper, say, and an `all_reduce` of the training step that called the helper. Where they are known to
    be lines of one call of that function, these are meant: of two layers, say, not of one. Of what a line has handed to
    another thread it says when it came only if it is waited for before the other line.
    """
    found = list(_in_one_function(one, other))
    of_one_call = (pair for pair in found if one_call(pair[0].caller, pair[1].caller))
    return next(of_one_call, found[0] if found else (one, other))


def _in_one_function(one: Site, other: Site) -> Iterator[tuple[Site, Site]]:
    for mine in _as_reached(one):
        for theirs in _as_reached(other):
            function = function_around(mine)
            if function is None or function is not function_around(theirs) or mine.line == theirs.line:
                continue
            if HANDED_OVER not in (mine.via, theirs.via) or waits_between(mine, theirs):
                yield mine, theirs


def _as_reached(site: Site) -> Iterator[Site]:
    """Its lines outward; what a ``with`` calls when it is left is in the line that it begins with, and comes later."""
    inner: Site | None = None
    for each in outward(site):
        yield replace(each, via=LEAVES_WITH) if leaves_a_with(inner, each) else each
        inner = each


def loops_below(line: Site, site: Site) -> bool:
    """Whether what is called at `line`, and comes to `site` at last, may do so in a loop of its own."""
    return any(map(is_in_a_loop, _below(line, site)))


def only_some_come(line: Site, site: Site) -> bool:
    """Whether what is called at `line` is for some ranks alone, or comes to `site` at last by way of what is."""
    return any(map(is_for_some_ranks, (line, *_below(line, site))))


def some_come_besides(line: Site, site: Site) -> bool:
    """The same where nothing at all is written for the other ranks."""
    return any(map(is_besides, (line, *_below(line, site))))


def _below(line: Site, site: Site) -> Iterator[Site]:
    """The lines from `site` outward up to the call at `line`."""
    return takewhile(lambda each: each.place != line.place or each.caller is not line.caller, outward(site))


def come_round(one: Site, other: Site) -> bool:
    """Whether there is a loop around both, in the function they are lines of or around its call."""
    if share_a_loop(one, other):
        return True
    return one.caller is not None and one_call(one.caller, other.caller) and in_any_loop(one.caller)


def in_any_loop(site: Site) -> bool:
    """Whether there is a loop around it, or a comprehension, or around one of the calls that led to it."""
    return any(is_in_a_loop(each) or is_in_a_comprehension(each) for each in outward(site))


def comes_round_without(site: Site, line: Site, other: Site) -> bool:
    """Whether a rank may come to `site`, called at `line`, again and again before it comes to the line `other`."""
    each_time = any(below.function == "__next__" for below in _below(line, site))  # by the head of a ``for``
    return loops_below(line, site) or is_in_a_loop_without(line, other, in_heads=each_time)


def in_turn_by_one_line(one: Site, other: Site) -> bool:
    """Whether the two are in functions that one line calls, each when a ``for`` comes to it, and none is left out."""
    theirs = {site.place: inner for inner, site in pairwise(outward(other))}
    for mine, site in pairwise(outward(one)):
        if site.place in theirs:
            return _in_two_functions(mine, theirs[site.place]) and is_in_turn(site)
    return False


def _in_two_functions(one: Site, other: Site) -> bool:
    if one.function == other.function == "<lambda>":
        return one.place != other.place
    if (one.file, one.function) != (other.file, other.function):
        return True
    here, there = function_around(one), function_around(other)  # methods of two classes may have one name
    return here is not None and there is not None and here is not there
