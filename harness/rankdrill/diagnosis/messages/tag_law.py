"""Two ends of one message that name two tags: which of them is wrong, where the tags of all others follow one law.

``edge * 20 + 2 * micro + backward`` and its like are sums: of the rank that sends, the one that receives, whether the
message goes up in rank, and how many have gone that way before, each times a number. Which numbers follows from the
other messages, met or still waited for, if they leave no choice for this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

from rankdrill.diagnosis.messages.tags import against
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic

__all__ = ["odd_by_law"]

MOST = 4096  # different messages that a law is made of
_Row: TypeAlias = tuple[int, ...]
"""What a tag may be made of; and the tag."""


def odd_by_law(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one that is not as all others' tags say; failing that, as those say that had as many before them."""
    made = [
        (_made_of(each, traffic), each.stream.tag)
        for ends in traffic.ends.values()
        for each in ends
        if each not in (end, other) and each.stream.group == end.stream.group
    ]
    mine = _made_of(end, traffic)
    if mine != _made_of(other, traffic):
        return None
    turn = traffic.turn(end)
    for rows in (made, [(of, tag) for of, tag in made if of[_TURN] == turn]):
        due = _due(dict.fromkeys((*of, tag) for of, tag in rows), mine)
        if due is not None:
            return against({due}, {each.stream.tag: each for each in (end, other)})
    return None


_TURN = 3  # its place in what follows


def _made_of(end: MessageEnd, traffic: Traffic) -> _Row:
    stream = end.stream
    return 1, stream.source, stream.target, traffic.turn(end), int(stream.source < stream.target)


def _due(rows: Iterable[_Row], wanted: _Row) -> int | None:
    """The one tag that goes with what is `wanted`, by all `rows`; None where they contradict each other, or leave it
    open.
    """
    basis: list[tuple[int, Sequence[Fraction]]] = []
    for count, row in enumerate(rows):
        left = _reduced([Fraction(each) for each in row], basis)
        place = next((place for place, each in enumerate(left[:-1]) if each), None)
        if place is None:
            if left[-1] or count > MOST:
                return None
            continue
        basis.append((place, [each / left[place] for each in left]))
    left = _reduced([*map(Fraction, wanted), Fraction(0)], basis)
    due = -left[-1]
    return None if any(left[:-1]) or due.denominator != 1 else int(due)


def _reduced(row: list[Fraction], basis: Iterable[tuple[int, Sequence[Fraction]]]) -> list[Fraction]:
    for place, other in basis:
        if row[place]:
            times = row[place]
            row = [mine - times * theirs for mine, theirs in zip(row, other, strict=True)]
    return row
