"""What all but one rank do at a line, each time they come to it: the keys they set or ask for there follow one rule.

They differ in numbers alone, and each of these is the same for all, or goes by the rank that sets the key or asks for
it: its own, or so many more, going round. So they tell what the one that is left was to set or to ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.stores.calls import StoreCalls
from rankdrill.diagnosis.stores.keys import awaits_key
from rankdrill.diagnosis.stores.setters import may_be_set
from rankdrill.diagnosis.stores.spelling import a_word_apart, of_the_same_parts, words_of
from rankdrill.diagnosis.stores.uses import number_in, numbers_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import Record
from rankdrill.step import Site

__all__ = [
    "Astray",
    "asks_as_others",
    "asks_in_a_branch_of_its_own",
    "asks_turned_round",
    "asks_unlike_the_others",
    "set_in_vain",
    "set_once_more",
    "set_unlike_the_others",
]

FEWEST_OTHERS = 2
MOST_ELSEWHERE = 1  # rank that comes to a line of all others never: it serves them, or begins


class Astray(NamedTuple):
    """Rank `rank` has set a key in `record` where by the custom of the others it was to be another one."""

    rank: int
    record: Record


def asks_unlike_the_others(wait: Wait, calls: StoreCalls) -> bool:
    """Whether it waits for another key than the one that is its own by the custom of all others at that line.

    That one has been set, and nobody asks for it; or all others got it, and no line may set the one that it waits for,
    or they ask for that the next time, or it is the same but for a word where they have asked for the same before.
    """
    target = wait.record.step.target
    others = _others_there(wait, calls)
    meant = _meant(wait.rank, others, calls.size)
    if meant is None or meant == target or meant not in calls.set_by_anybody:
        return False
    if not _is_like(meant, target):
        return False
    if meant in others.values():
        return target not in others.values() and (
            _asked_next(wait, others, calls) == {target}
            or not _may_be_set(target, calls)
            or (a_word_apart(target, meant) and _asked_alike_before(wait, others, calls))
        )
    return meant not in calls.looked_for


def _is_like(key: str, other: str) -> bool:
    """Whether they have the same numbers, or else the same words; a number may be below 0."""
    mine, theirs = ([word.removesuffix("-") for word in words_of(each)] for each in (key, other))
    return mine == theirs or numbers_in(key) == numbers_in(other)


def asks_as_others(wait: Wait, calls: StoreCalls) -> bool:
    """Whether what it waits for is its own by the custom of all others at that line."""
    return _meant(wait.rank, _others_there(wait, calls), calls.size) == wait.record.step.target


def set_unlike_the_others(key: str, calls: StoreCalls) -> Astray | None:
    """Where one rank was to set `key`, as all others have set theirs at a line, and has set another there that time."""
    if not calls.whole:
        return None
    found: dict[int, Astray] = {}
    for site in calls.lines_that_set():
        for turn in range(max(len(calls.set_at(rank, site)) for rank in range(calls.size))):
            there = calls.set_in_turn(site, turn)
            rank = _who_was_to(key, there, calls.size)
            if rank is not None and not _drew(rank, there, calls):
                found[rank] = Astray(rank, there[rank])
    return found.popitem()[1] if len(found) == 1 else None


def _drew(odd: int, there: Mapping[int, Record], calls: StoreCalls) -> bool:
    """Whether each has counted something up just before: the number that it drew is no rank's, whoever came first. Not
    where all but the `odd` one have set their own number, whatever they counted.
    """
    if all(rank in numbers_in(record.step.target) for rank, record in there.items() if rank != odd):
        return False
    places = {rank: calls.sets[rank].index(record) for rank, record in there.items()}
    return all(place and calls.sets[rank][place - 1].step.op == "add" for rank, place in places.items())


def set_once_more(key: str, calls: StoreCalls) -> Astray | None:
    """What one rank has set last at a line, where it had been set before, by whomever, and nothing else has been twice:
    in the place of `key`, the next one or the one before, which nobody has set.
    """
    if not calls.whole or key in calls.set_by_anybody:
        return None
    told = (_set_twice(site, calls) for site in calls.lines_that_set())
    found = [twice for twice in told if twice is not None and _is_next(key, twice.record.step.target)]
    return found[0] if len(found) == 1 else None


def _set_twice(site: Site, calls: StoreCalls) -> Astray | None:
    """The only key that was set at that line where it had been set before, and got: by one of several, as its last."""
    there = sorted((Astray(rank, each) for rank in range(calls.size) for each in calls.set_at(rank, site)), key=_begun)
    names = [each.record.step.target for each in there]
    again = [each for place, each in enumerate(there) if names[place] in names[:place]]
    if len(again) != 1 or len({each.rank for each in there}) <= FEWEST_OTHERS:
        return None
    (twice,) = again
    name, began = twice.record.step.target, twice.record.begin_ns
    got = any(each.step.target == name and each.begin_ns < began for asks in calls.asks for each in asks)
    return twice if got and twice.record is calls.set_at(twice.rank, site)[-1] else None


def _is_next(key: str, other: str) -> bool:
    differs = number_in(key, other)
    return differs is not None and abs(differs[1] - differs[2]) == 1


def set_in_vain(key: str, waiters: Sequence[int], lost: Mapping[int, Wait], calls: StoreCalls) -> Astray | None:
    """What one rank, which waits for none itself, has set like `key` but for a number, where each has set one such: it
    alone is asked for by nobody, or had been set by another one. Who waits asks for it as others ask for theirs.
    """
    if not calls.whole or not all(asks_as_others(lost[rank], calls) for rank in waiters):
        return None
    there = {
        rank: [record for record in sets if number_in(key, record.step.target)] for rank, sets in enumerate(calls.sets)
    }
    if any(len(records) > 1 for records in there.values()):
        return None
    inorder = sorted((Astray(rank, *records) for rank, records in there.items() if records), key=_begun)
    found = [
        each
        for place, each in enumerate(inorder)
        if each.record.step.target not in calls.looked_for
        or each.record.step.target in {before.record.step.target for before in inorder[:place]}
    ]
    if len(found) != 1:
        return None
    at = lost.get(found[0].rank)
    return found[0] if at is None or not awaits_key(at.record.step) else None


def asks_turned_round(key: str, waiters: Sequence[int], calls: StoreCalls) -> bool:
    """Whether one alone waits for `key`, and nobody for it with its parts in another order.

    As another one has set it, by the custom of the rest.
    """
    if len(waiters) != 1 or not calls.whole:
        return False
    turned = (
        (rank, record)
        for rank, sets in enumerate(calls.sets)
        for record in sets
        if rank not in waiters and of_the_same_parts(key, record.step.target)
    )
    return any(
        record.step.target not in calls.looked_for and _is_as_others_set(rank, record, calls) for rank, record in turned
    )


def asks_in_a_branch_of_its_own(wait: Wait, calls: StoreCalls) -> bool:
    """Whether no line may set the key that it waits for, and in another branch beside its line all others ask for one
    that has been set.
    """
    site, target = wait.record.step.site, wait.record.step.target
    if site is None or not calls.whole or _may_be_set(target, calls):
        return False
    beside = {
        record.step.target
        for rank, asks in enumerate(calls.asks)
        for record in asks
        if rank != wait.rank and record.step.site is not None and order_of(site, record.step.site) is Order.APART
    }
    alike = {key for key in beside if len(numbers_in(key)) == len(numbers_in(target))}
    return len(alike) == 1 and alike <= calls.set_by_anybody


def _is_as_others_set(rank: int, record: Record, calls: StoreCalls) -> bool:
    site = record.step.site
    if site is None:
        return False
    others = _of_others(rank, calls.set_in_turn(site, calls.set_at(rank, site).index(record)))
    return _meant(rank, others, calls.size) == record.step.target


def _of_others(rank: int, there: Mapping[int, Record]) -> dict[int, str]:
    """The keys, without that of `rank`."""
    return {other: record.step.target for other, record in there.items() if other != rank}


def _begun(astray: Astray) -> int:
    return astray.record.begin_ns


def _others_there(wait: Wait, calls: StoreCalls) -> dict[int, str]:
    """What the others asked for at the line of `wait` when they were as often there, if all but one have been there."""
    site = wait.record.step.site
    if site is None or not calls.whole:
        return {}
    visits = len(calls.asked_at(wait.rank, site))
    found = _of_others(wait.rank, calls.asked_in_turn(site, visits - 1)) if visits else {}
    return found if len(found) + 1 + MOST_ELSEWHERE >= calls.size else {}


def _asked_next(wait: Wait, others: Mapping[int, str], calls: StoreCalls) -> set[str]:
    """What the others asked for the time after that."""
    site = wait.record.step.site
    assert site is not None
    there = calls.asked_in_turn(site, len(calls.asked_at(wait.rank, site)))
    return {record.step.target for rank, record in there.items() if rank in others}


def _asked_alike_before(wait: Wait, others: Mapping[int, str], calls: StoreCalls) -> bool:
    """Whether all of them were there before, each time for the key that it asked for, too."""
    site = wait.record.step.site
    assert site is not None
    before = [record.step.target for record in calls.asked_at(wait.rank, site)[:-1]]
    theirs = ([record.step.target for record in calls.asked_at(rank, site)[: len(before)]] for rank in others)
    return bool(before) and all(each == before for each in theirs)


def _may_be_set(key: str, calls: StoreCalls) -> bool:
    """Whether a line of the program may set it, as far as the source says, or has set one like it."""
    if any(words_of(other) == words_of(key) for other in calls.set_by_anybody):
        return True
    records = (record for of_rank in (*calls.sets, *calls.asks) for record in of_rank)
    return may_be_set(key, {record.step.site for record in records if record.step.site is not None})


def _who_was_to(key: str, there: Mapping[int, Record], size: int) -> int | None:
    """The one rank that has set another key than `key`, which by the custom of the rest it was to set."""
    keys = {rank: record.step.target for rank, record in there.items()}
    if len(keys) <= FEWEST_OTHERS or key in keys.values():
        return None
    alike = [rank for rank, other in keys.items() if words_of(other) == words_of(key)]
    apart = set(keys) - set(alike)
    if len(alike) < FEWEST_OTHERS or len(apart) > 1:
        return None
    for odd in apart or _by_the_rule_of_two(key, alike, keys, size):
        if _meant(odd, {rank: other for rank, other in keys.items() if rank != odd}, size) == key:
            return odd
    return None


def _by_the_rule_of_two(key: str, ranks: Sequence[int], keys: Mapping[int, str], size: int) -> set[int]:
    """Who may be the odd one: each to whom `key` would fall, by what the first and second, or the last, have set."""
    first, second, last = ranks[0], ranks[1], ranks[-1]
    wanted = numbers_in(key)
    found = {first, second, last}
    for one, other in ((first, second), (second, last), (first, last)):
        for place, (mine, theirs) in enumerate(zip(numbers_in(keys[one]), numbers_in(keys[other]), strict=True)):
            if mine != theirs and one != other:
                found |= {wanted[place] - (mine - one), (wanted[place] - (mine - one)) % size}
    return found & set(ranks)


def _meant(rank: int, others: Mapping[int, str], size: int) -> str | None:
    """What `rank` was to set or ask for, where `others` did these; None where they follow no rule, or are too few."""
    if len(others) < FEWEST_OTHERS or len({words_of(key) for key in others.values()}) != 1:
        return None
    words = words_of(next(iter(others.values())))
    rows = zip(*(numbers_in(key) for key in others.values()), strict=True)
    numbers = [_number(rank, dict(zip(others, row, strict=True)), size) for row in rows]
    if None in numbers:
        return None
    return "".join(f"{word}{number}" for word, number in zip(words, numbers, strict=False)) + words[-1]


def _number(rank: int, of_others: Mapping[int, int], size: int) -> int | None:
    """The one of `rank`, where others have these: the same, or as much more than their rank; None where neither."""
    if len(set(of_others.values())) == 1:
        return next(iter(of_others.values()))
    more = {number - other for other, number in of_others.items()}
    of_ranks = max(of_others.values()) < size
    if of_ranks:
        more = {each % size for each in more}
    if len(more) != 1:
        return None
    number = rank + more.pop()
    return number % size if of_ranks else number
