"""One rank's calls laid beside those of others: by the lines that made them, and by the groups, which count them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rankdrill.replay.score import Call
from rankdrill.step import NO_SEQUENCE

__all__ = ["Row", "laid_beside"]

MOST_COMPARED = 1 << 18  # pairs of calls that are weighed one by one
ONE_LINE, ONE_CALL, LAST_CALL = 3, 1, 5
"""What it weighs that two were made from one line, that a group counts them as one, and that a rank came no further."""


@dataclass(frozen=True)
class Row:
    """Calls that ranks made in one place of the program: by the line that they came from, each rank's own."""

    ways: Mapping[object, Mapping[int, Call]]

    @classmethod
    def of(cls, call: Call, ranks: Sequence[int]) -> Row:
        return cls({_place(call): dict.fromkeys(ranks, call)})

    @property
    def numbers(self) -> set[tuple[str, int]]:
        """Which call of which group it is."""
        calls = (call for way in self.ways.values() for call in way.values())
        return {(call.group, call.number) for call in calls if call.number != NO_SEQUENCE}

    @property
    def line(self) -> tuple[str, int]:
        """The file and the line of one of them; no line where none is known."""
        site = next((call.site for way in self.ways.values() for call in way.values()), "")
        file, _, line = site.rpartition(":")
        return file, int(line) if line.isdecimal() else 0

    def beside(self, other: Row) -> Row:
        """Both as one."""
        made = {place: dict(way) for place, way in self.ways.items()}
        for place, way in other.ways.items():
            made.setdefault(place, {}).update(way)
        return Row(made)


def laid_beside(rows: Sequence[Row], mine: Sequence[Row], *, leads: bool, by_number: bool) -> list[Row]:
    """`rows`, and those of one more rank beside them; where they have nothing in common these come last, unless this
    rank `leads`, or, `by_number`, their lines stand in another order.
    """
    made: list[Row] = []
    at = other = 0
    for here, there in (*_pairs(rows, mine, by_number=by_number), (len(rows), len(mine))):
        theirs, ours = rows[at:here], mine[other:there]
        made += [*ours, *theirs] if leads or (by_number and _stands_first(ours, theirs)) else [*theirs, *ours]
        if here < len(rows):
            made.append(rows[here].beside(mine[there]))
        at, other = here + 1, there + 1
    return made


def _stands_first(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    if not ours or not theirs:
        return False
    (file, line), (other, last) = ours[-1].line, theirs[0].line
    return file == other and 0 < line < last


def _pairs(rows: Sequence[Row], mine: Sequence[Row], *, by_number: bool) -> Iterator[tuple[int, int]]:
    """Which are laid beside each other, in order. Thousands of equal ones at the beginning are not weighed."""
    same = 0
    for one, other in zip(rows, mine, strict=False):
        if not one.ways.keys() & other.ways.keys():
            break
        yield same, same
        same += 1
    left, right = rows[same:], mine[same:]
    weighed = by_number and len(left) * len(right) <= MOST_COMPARED
    for here, there in _heaviest(left, right) if weighed else _of_one_line(left, right):
        yield here + same, there + same


def _of_one_line(rows: Sequence[Row], mine: Sequence[Row]) -> Iterator[tuple[int, int]]:
    places, others = ([next(iter(row.ways)) for row in each] for each in (rows, mine))
    for one, other, many in SequenceMatcher(None, places, others, autojunk=False).get_matching_blocks():
        yield from ((one + at, other + at) for at in range(many))


def _heaviest(rows: Sequence[Row], mine: Sequence[Row]) -> list[tuple[int, int]]:
    """The pairs, in order, that weigh most together: as texts are compared, letter by letter."""
    weights = [[_weight(row, other) for other in mine] for row in rows]
    if mine:  # what it did in the place of another's call it ended with
        for row, weighed in zip(rows, weights, strict=True):
            weighed[-1] += LAST_CALL * bool(row.numbers & mine[-1].numbers)
    best = [[0] * (len(mine) + 1) for _ in range(len(rows) + 1)]
    for at in reversed(range(len(rows))):
        for other in reversed(range(len(mine))):
            paired = weights[at][other] + best[at + 1][other + 1] if weights[at][other] else 0
            best[at][other] = max(paired, best[at + 1][other], best[at][other + 1])
    pairs, at, other = [], 0, 0
    while at < len(rows) and other < len(mine):
        if weights[at][other] and best[at][other] == weights[at][other] + best[at + 1][other + 1]:
            pairs.append((at, other))
            at, other = at + 1, other + 1
        elif best[at][other] == best[at + 1][other]:
            at += 1
        else:
            other += 1
    return pairs


def _weight(one: Row, other: Row) -> int:
    return ONE_LINE * bool(one.ways.keys() & other.ways.keys()) + ONE_CALL * bool(one.numbers & other.numbers)


def _place(call: Call) -> object:
    """What two ranks have in common that make one call from one line; where no line is known, the call itself."""
    return (call.op, call.via, call.site, bool(call.key)) if call.site else call
