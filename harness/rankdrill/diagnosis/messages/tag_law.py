"""Two ends of one message that name two tags: which of them is wrong, where the tags of all others follow one law.

``edge * 20 + 2 * micro + backward`` and its like are sums: of the rank that sends, the one that receives, whether the
message goes up in rank, and how many have gone that way before, each times a number. Which numbers follows from the
other messages, met or still waited for, if they leave no choice for this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from rankdrill.diagnosis.messages.tags import against
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic

__all__ = ["odd_by_law"]

NEWEST = 1024  # messages, of all ranks, that a law is made of
FEWEST_TURNS = 4  # from which the next may follow: of fewer the tags may begin anew


class _Terms(NamedTuple):
    """What a tag may be a sum of, each times a number."""

    one: int
    source: int
    target: int
    turn: int
    up: int


def odd_by_law(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one that is not as all others' tags say; failing that, as those say that had as many before them."""
    mine = _terms_of(end, traffic)
    if mine != _terms_of(other, traffic):
        return None
    tags = list(dict.fromkeys(_others(end, traffic)))
    turns = {terms.turn for terms, _ in tags}
    beside = [(terms, tag) for terms, tag in tags if terms.turn == mine.turn]
    due = _due(tags, mine) if beside or len(turns) >= FEWEST_TURNS else None
    due = due if due is not None else _due(beside, mine)
    two = {each.stream.tag for each in (end, other)}
    if due is None and two.isdisjoint(_simpler(beside, mine)):
        # Nothing but products: what is open with a number added need not be without one.
        due = _due([(terms._replace(one=0), tag) for terms, tag in beside], mine._replace(one=0))
    return None if due is None else against({due}, {each.stream.tag: each for each in (end, other)})


def _simpler(tags: Iterable[tuple[_Terms, int]], mine: _Terms) -> Iterator[int]:
    """What it would be if all had one tag, or each the next one after that of the rank before."""
    for terms, tag in tags:
        yield from (tag, tag + mine.source - terms.source, tag + mine.target - terms.target)


def _others(end: MessageEnd, traffic: Traffic) -> Iterator[tuple[_Terms, int]]:
    """What the tags of other messages of that group are made of; of each rank's the newest.

    What has not met either of all that goes that way is as doubtful as the two are.
    """
    most = max(1, NEWEST // len(traffic.ends))
    for ends in traffic.ends.values():
        for each in ends[-most:]:
            that_way = each.stream._replace(tag=end.stream.tag) == end.stream
            if each.stream.group == end.stream.group and not (that_way and each.number >= traffic.met(each.stream)):
                yield _terms_of(each, traffic), each.stream.tag


def _terms_of(end: MessageEnd, traffic: Traffic) -> _Terms:
    stream = end.stream
    return _Terms(1, stream.source, stream.target, traffic.turn(end), int(stream.source < stream.target))


def _due(tags: Iterable[tuple[_Terms, int]], wanted: _Terms) -> int | None:
    """The one tag that goes with what is `wanted`, by all `tags`; None where they contradict each other, or leave it
    open.
    """
    basis: list[tuple[int, Sequence[Fraction]]] = []
    for terms, tag in tags:
        left = _reduced([*map(Fraction, terms), Fraction(tag)], basis)
        place = next((place for place, each in enumerate(left[:-1]) if each), None)
        if place is not None:
            basis.append((place, [each / left[place] for each in left]))
        elif left[-1]:
            return None
    left = _reduced([*map(Fraction, wanted), Fraction(0)], basis)
    due = -left[-1]
    return None if any(left[:-1]) or due.denominator != 1 else int(due)


def _reduced(row: list[Fraction], basis: Iterable[tuple[int, Sequence[Fraction]]]) -> list[Fraction]:
    for place, other in basis:
        if row[place]:
            times = row[place]
            row = [mine - times * theirs for mine, theirs in zip(row, other, strict=True)]
    return row
