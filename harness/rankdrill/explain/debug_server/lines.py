"""What dumps without stacks have found, with the lines that stacks of the same moment tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rankdrill.diagnosis import Finding, Side
from rankdrill.explain.debug_server.stacks import Stack
from rankdrill.explain.explanation import Cause, Explanation, Place

__all__ = ["with_lines"]

_HAS_LINE = re.compile(r", at [^ ]+:\d+")
_STILL_THERE = ("waits in ", "wait in ", "enters ", "enter ", "has not come", "have not come", "is in ", "are in ")
"""How sides begin that are where their ranks still are."""


def with_lines(explanation: Explanation, stacks: Mapping[int, Stack]) -> Explanation:
    """`explanation` with the lines where ranks are, for those calls of which it has none."""
    causes = tuple(replace(cause, finding=_of(cause, stacks)) for cause in explanation.causes)
    places = tuple(part for place in explanation.places for part in _parts(place, stacks))
    return replace(explanation, causes=causes, places=places)


def _of(cause: Cause, stacks: Mapping[int, Stack]) -> Finding:
    return replace(cause.finding, sides=tuple(_side(side, stacks) for side in cause.finding.sides))


def _side(side: Side, stacks: Mapping[int, Stack]) -> Side:
    if not side.did.startswith(_STILL_THERE) or any(side.sites):
        return side
    return replace(side, sites=tuple(stacks[rank].site if rank in stacks else None for rank in side.ranks))


def _parts(place: Place, stacks: Mapping[int, Stack]) -> list[Place]:
    """`place`, of which those in one line are together."""
    if _HAS_LINE.search(place.doing):
        return [place]
    by_line: dict[str, list[int]] = {}
    for rank in place.ranks:
        where = stacks.get(rank, Stack()).where
        if not place.doing.startswith("in "):  # that line is of something else
            where = where.replace(", at", "; now at", 1)
        by_line.setdefault(place.doing + where, []).append(rank)
    return [Place(tuple(ranks), doing) for doing, ranks in by_line.items()]
