"""A key that somebody waits for, and that somebody else has set under another name, which nobody asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from rankdrill.diagnosis.stores.keys import awaits_key
from rankdrill.diagnosis.stores.spelling import (
    cases_of,
    in_other_letters,
    of_the_same_parts,
    same_but_for_separators,
    same_but_for_spelling,
    same_form,
    says_twice,
    separators_of,
    words_of,
)
from rankdrill.diagnosis.stores.uses import Use, number_in, numbers_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import STORE_WAITS, Kind, Step

__all__ = [
    "asks_in_another_form",
    "asks_under_a_prefix_twice",
    "misspelt_by",
    "set_at_their_line",
    "set_for_nobody",
    "set_turned_round",
    "set_under_a_prefix_twice",
    "turned_round_by_one",
    "waiting_for_such",
]


def misspelt_by(awaited: Step, waiters: Sequence[int], uses: Sequence[Use], views: Sequence[LedgerView]) -> Use | None:
    """Where one rank has set the key in another spelling, which nobody gets: that, if others spell as it is awaited.

    So they do who wait for it, or for such keys of other numbers, if they are several, and who set such that are got;
    or who set others at that line, if these are in small letters and capitals as the one that is awaited.
    """
    asked = set(_asked_for(views))
    meant = [
        use
        for use in uses
        if use.sets and use.record.step.digest not in asked and same_but_for_spelling(awaited.target, use.key)
    ]
    was_set = any(use.sets and use.record.step.digest == awaited.digest for use in uses)
    if was_set or len({use.rank for use in meant}) != 1:
        return None
    others = (use for use in uses if use.sets and use.record.step.digest in asked)
    agreed = len(waiters) > 1 or any(same_form(awaited.target, use.key) for use in others)
    agreed = agreed or len({use.rank for use in uses if use.sets and same_form(awaited.target, use.key)}) > 1
    agreed = agreed or _is_alone_in_its_case(meant[-1], awaited, uses, asked)
    return meant[-1] if agreed else None


def _is_alone_in_its_case(meant: Use, awaited: Step, uses: Sequence[Use], asked: Set[int]) -> bool:
    """Whether what was set differs from what is awaited in small letters and capitals alone, and so from all, several,
    that others set at that line and that have been asked for.
    """
    there = [use for use in uses if use.sets and use.record.step.site == meant.record.step.site]
    beside = {use.key for use in there if use.rank != meant.rank and use.record.step.digest in asked}
    mine, usual = cases_of(meant.key), cases_of(awaited.target)
    differs = meant.key.casefold() == awaited.target.casefold() and mine != usual
    return differs and len(beside) > 1 and all(cases_of(key) == usual for key in beside)


def asks_in_another_form(awaited: Step, uses: Sequence[Use], views: Sequence[LedgerView]) -> bool:
    """Whether the key has been set as several others were that have been asked for, and is awaited in another form."""
    asked = set(_asked_for(views))
    sets = [use for use in uses if use.sets]
    meant = {use.key for use in sets if same_but_for_spelling(awaited.target, use.key)}
    got = {use.key for use in sets if use.record.step.digest in asked}
    in_form = len(meant) == 1 and all(
        sum(same_form(key, other) for other in got) > 1 and not any(same_form(awaited.target, other) for other in got)
        for key in meant
    )
    if any(in_other_letters(awaited.target, key) and _is_one_of_many(key, awaited, sets) for key in meant - got):
        return True
    left = {key for key in meant - got if same_but_for_separators(awaited.target, key)}
    return in_form or (len(left) == 1 and _has_other_separators(awaited.target, left.pop(), sets, asked))


def _is_one_of_many(meant: str, awaited: Step, sets: Sequence[Use]) -> bool:
    """Whether several ranks have set keys like `meant` at its line, each one of another number, and nobody one as it is
    `awaited`.
    """
    lines = {use.record.step.site for use in sets if use.key == meant} - {None}
    ranks = {use.rank for use in sets if use.record.step.site in lines and same_form(meant, use.key)}
    return len(ranks) > 1 and not any(same_form(awaited.target, use.key) for use in sets)


def _has_other_separators(key: str, meant: str, sets: Sequence[Use], asked: Set[int]) -> bool:
    """Whether it is written with other separators than the key that was `meant`, and several that were set at the line
    of that and have been asked for.
    """
    lines = {use.record.step.site for use in sets if use.key == meant} - {None}
    beside = {use.key for use in sets if use.record.step.site in lines and use.record.step.digest in asked}
    return len(beside) > 1 and {separators_of(each) for each in beside} == {separators_of(meant)} != {
        separators_of(key)
    }


def asks_under_a_prefix_twice(awaited: Step, waiters: Sequence[int], uses: Sequence[Use]) -> bool:
    """Whether the key was set, and is awaited with a part said twice, as by a store in a store of one prefix; and such
    keys were set by as many ranks at least as wait for it.
    """
    setters = {use.rank for use in uses if use.sets and says_twice(awaited.target, use.key)}
    return bool(setters) and len(waiters) <= len(setters)


def set_under_a_prefix_twice(awaited: Step, uses: Sequence[Use], views: Sequence[LedgerView]) -> Use | None:
    """What one rank has set, and nobody asks for: that key, with a part said twice."""
    asked = set(_asked_for(views))
    meant = [use for use in uses if use.sets and says_twice(use.key, awaited.target)]
    there = [use for use in meant if use.record.step.digest not in asked]
    return there[-1] if there and len({use.rank for use in meant}) == 1 else None


def set_at_their_line(key: str, rank: int, uses: Sequence[Use], views: Sequence[LedgerView]) -> Use | None:
    """What `rank` set, and nobody asks for or another has set there too, where others set keys like `key`."""
    sets, asked = [use for use in uses if use.sets], set(_asked_for(views))
    others = [use for use in sets if use.rank != rank and words_of(use.key) == words_of(key)]
    there, theirs = {use.record.step.site for use in others}, {use.record.step.digest for use in others}
    mine = [use for use in reversed(sets) if use.rank == rank and use.record.step.site in there - {None}]
    return next((use for use in mine if use.record.step.digest not in asked or use.record.step.digest in theirs), None)


def set_for_nobody(key: str, rank: int, uses: Sequence[Use], views: Sequence[LedgerView]) -> Use | None:
    """What `rank`, which is to blame, has set instead: the only one that it has set in vain, of the numbers of `key` in
    other words; or one of another number, which another rank has set as well.
    """
    asked, sets = set(_asked_for(views)), [use for use in uses if use.sets]
    mine = [use for use in sets if use.rank == rank and use.key != key]
    vain = [use for use in mine if use.record.step.digest not in asked]
    if len({use.key for use in vain}) == 1 and numbers_in(key) and numbers_in(key) == numbers_in(vain[-1].key):
        return vain[-1]
    theirs = {use.record.step.digest for use in sets if use.rank != rank}
    again = [use for use in mine if use.record.step.digest in theirs and number_in(key, use.key) is not None]
    return again[-1] if len({use.key for use in again}) == 1 else None


def set_turned_round(awaited: Step, rank: int, uses: Sequence[Use], views: Sequence[LedgerView]) -> Use | None:
    """What `rank`, which is to blame, has set and nobody asks for: that key, but for the order of its parts."""
    asked = set(_asked_for(views))
    mine = (use for use in reversed(uses) if use.sets and use.rank == rank and use.record.step.digest not in asked)
    return next((use for use in mine if of_the_same_parts(awaited.target, use.key)), None)


def turned_round_by_one(awaited: Step, uses: Sequence[Use], views: Sequence[LedgerView]) -> Use | None:
    """What the one rank that has such has set, and nobody asks for: that key, but for the order of its parts.

    Of parts that are words: what differs in the order of two ranks is another key.
    """
    ranks = {use.rank for use in uses if use.sets and _of_the_same_words(awaited.target, use.key)}
    return set_turned_round(awaited, min(ranks), uses, views) if len(ranks) == 1 else None


def _of_the_same_words(key: str, other: str) -> bool:
    pairs = zip(key.split("/"), other.split("/"), strict=False)
    return of_the_same_parts(key, other) and any(not part.isdigit() for mine, part in pairs if mine != part)


def waiting_for_such(awaited: Step, beside: Mapping[int, Wait]) -> list[int]:
    """Who waits for that key, or for one of another number in the same form."""
    keys = {rank: wait.record.step.target for rank, wait in beside.items() if awaits_key(wait.record.step)}
    return [rank for rank, key in keys.items() if key == awaited.target or same_form(awaited.target, key)]


def _asked_for(views: Sequence[LedgerView]) -> Iterator[int]:
    """The keys that a rank has got, or looked for, or waits for."""
    for view in views:
        for record in view.where(lambda kind, _state: kind is Kind.STORE):
            if record.step.op in STORE_WAITS or record.step.op == "check":
                yield record.step.digest
