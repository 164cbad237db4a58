"""Keys whose numbers follow from the rank that sets them: its own, its neighbour's. Then one that nobody set was one's.

The key that is missing says by itself what each rank would have set, if a given one of them was to set it: each number
in it is the same for all, or lies as far from the rank's own. Where all other ranks have set just these, it was that
one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.uses import Use
from rankdrill.step import Step

__all__ = ["asks_past_them_all", "goes_past_its_own", "whose_own"]

FEWEST_OTHERS = 2
MOST_NUMBERS = 4  # in one key, that are not the same in all
_NUMBER = re.compile(r"\d+")


def whose_own(key: str, uses: Sequence[Use], size: int) -> int | None:
    """The one of `size` ranks that was to set `key`, as all the others have set theirs; None if that is not known."""
    if size <= FEWEST_OTHERS:
        return None
    was_set: dict[int, set[tuple[int, ...]]] = {rank: set() for rank in range(size)}
    for use in uses:
        if use.sets and words_of(use.key) == words_of(key):
            was_set[use.rank].add(_numbers(use.key))
    setters = {rank for rank, keys in was_set.items() if keys}
    wanted = _numbers(key)
    differ = [
        place
        for place, number in enumerate(wanted)
        if any(one[place] != number for keys in was_set.values() for one in keys)
    ]
    counted = [place for place in differ if _counts_rounds(place, [was_set[rank] for rank in setters])]
    differ = [place for place in differ if place not in counted]
    if not 0 < len(differ) <= MOST_NUMBERS:
        return None
    # Who sets none may not be to set any, as the one that gets all: unless that is the one which is to set this key.
    found = {
        rank
        for rank in range(size)
        if len(setters - {rank}) >= FEWEST_OTHERS and (rank in setters or len(setters) == size - 1)
        for own in _ways(wanted, differ, rank, size)
        if all(own[other] in was_set[other] for other in setters - {rank})
    }
    return found.pop() if len(found) == 1 else None


def goes_past_its_own(awaited: Step, rank: int, uses: Sequence[Use]) -> Use | None:
    """What was set for `rank` and nobody got, where others got theirs by number at the line at which it waits."""
    place = awaited.target.rpartition("/")[0]
    if not place or awaited.site is None:
        return None
    there = [use for use in uses if not use.sets and use.record.step.site == awaited.site]
    got = {use.rank: use.key for use in there if use.key.rpartition("/")[0] == place}
    own = next((use for use in uses if use.sets and use.key == f"{place}/{rank}"), None)
    others = len(got) >= FEWEST_OTHERS and all(theirs == f"{place}/{other}" for other, theirs in got.items())
    return own if others and own is not None and own.key not in got.values() else None


def asks_past_them_all(key: str, rank: int, uses: Sequence[Use]) -> bool:
    """Whether `rank` waits for `key`, the next after the last round for which several others have set theirs: all that
    have set such for as many.
    """
    was_set: dict[int, set[tuple[int, ...]]] = {}
    for use in uses:
        if use.sets and use.rank != rank and words_of(use.key) == words_of(key):
            was_set.setdefault(use.rank, set()).add(_numbers(use.key))
    wanted = _numbers(key)
    for place, number in enumerate(wanted):
        rounds = [{each[place] for each in keys} for keys in was_set.values()]
        alike = len(rounds) >= FEWEST_OTHERS and all(each == rounds[0] for each in rounds)
        before = (*wanted[:place], number - 1, *wanted[place + 1 :])
        if alike and max(rounds[0]) == number - 1 and any(before in keys for keys in was_set.values()):
            return True
    return False


def _counts_rounds(place: int, of_ranks: Sequence[set[tuple[int, ...]]]) -> bool:
    """Whether all have set keys of the same numbers there, several: then it is no rank's, nor lies beside it."""
    return len(set[int].intersection(*({key[place] for key in keys} for keys in of_ranks))) > 1


def _ways(wanted: tuple[int, ...], differ: Sequence[int], rank: int, size: int) -> Iterator[list[tuple[int, ...]]]:
    """What each rank would have set, by rank, were `wanted` that of `rank`; numbers of ranks go round."""
    for moves in product((False, True), repeat=len(differ)):
        moving = {place for place, each in zip(differ, moves, strict=True) if each}
        if moving:
            yield [
                tuple(
                    _moved(number, other - rank, size) if place in moving else number
                    for place, number in enumerate(wanted)
                )
                for other in range(size)
            ]


def _moved(number: int, by: int, size: int) -> int:
    return (number + by) % size if number < size else number + by


def _numbers(key: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(key)))
