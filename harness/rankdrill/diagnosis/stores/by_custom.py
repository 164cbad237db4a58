"""What all but one rank do at a line, each time they come to it: the keys they set or ask for there follow one rule.

They differ in numbers alone, and each of these is the same for all, or goes by the rank that sets the key or asks for
it: its own, or so many more, going round. So they tell what the one that is left was to set or to ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankdrill.diagnosis.stores.keys import SETTING, awaits_key
from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.uses import number_in, numbers_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import STORE_WAITS, Kind, Site

__all__ = ["Astray", "asks_as_others", "asks_unlike_the_others", "set_by", "set_in_vain", "set_unlike_the_others"]

FEWEST_OTHERS = 2


class Astray(NamedTuple):
    """Rank `rank` has set a key in `record` where by the custom of the others it was to be another one."""

    rank: int
    record: Record


def asks_unlike_the_others(wait: Wait, views: Sequence[LedgerView]) -> bool:
    """Whether it waits for another key than the one that is its own by the custom of all others at that line.

    That one has been set, and nobody asks for it; or all others got it, and nobody sets one like the one that it
    waits for, or they ask for that the next time.
    """
    step = wait.record.step
    if step.site is None or any(view.dropped for view in views):
        return False
    visits, turn, others = _there(wait, views)
    meant = _meant(wait.rank, others, len(views))
    if meant is None or meant == step.target:
        return False
    sets, asked = {key for view in views for key in set_by(view)}, {key for keys in visits for key in keys}
    if meant in others.values():
        next_ = {keys[turn + 1] for rank, keys in enumerate(visits) if rank in others and len(keys) > turn + 1}
        apart = not any(words_of(key) == words_of(step.target) for key in sets)
        return meant in sets and step.target not in others.values() and (apart or next_ == {step.target})
    return meant in sets - asked


def set_unlike_the_others(key: str, views: Sequence[LedgerView]) -> Astray | None:
    """Where one rank was to set `key`, as all others have set theirs at a line, and has set another there that time."""
    if any(view.dropped for view in views):
        return None
    found: dict[int, Astray] = {}
    for site in {record.step.site for view in views for record in _setting(view)} - {None}:
        visits = [[record for record in _setting(view) if record.step.site == site] for view in views]
        for turn in range(max(map(len, visits))):
            there = {rank: records[turn] for rank, records in enumerate(visits) if len(records) > turn}
            for rank, record in there.items():
                others = {other: each.step.target for other, each in there.items() if other != rank}
                if record.step.target != key == _meant(rank, others, len(views)):
                    found[rank] = Astray(rank, record)
    return found.popitem()[1] if len(found) == 1 else None


def set_in_vain(
    key: str, waiters: Sequence[int], lost: Mapping[int, Wait], views: Sequence[LedgerView]
) -> Astray | None:
    """What one rank, which waits for none itself, has set like `key` but for a number: alone of all that were set such,
    nobody asks for it, or another one had set it before. Who waits asks for it as others ask for theirs.
    """
    if any(view.dropped for view in views) or not all(asks_as_others(lost[rank], views) for rank in waiters):
        return None
    asked = {record.step.target for view in views for record in _asking(view)}
    there = [Astray(rank, record) for rank, view in enumerate(views) for record in _setting(view)]
    there = sorted(
        (each for each in there if number_in(key, each.record.step.target)), key=lambda each: each.record.begin_ns
    )
    found, known = [], set[str]()
    for each in there:
        name = each.record.step.target
        if name not in asked or name in known:
            found.append(each)
        known.add(name)
    return found[0] if len(found) == 1 and not _awaits_key(lost, found[0].rank) else None


def asks_as_others(wait: Wait, views: Sequence[LedgerView]) -> bool:
    """Whether what it waits for is its own by the custom of all others at that line."""
    _, _, others = _there(wait, views)
    return _meant(wait.rank, others, len(views)) == wait.record.step.target


def _there(wait: Wait, views: Sequence[LedgerView]) -> tuple[list[list[str]], int, dict[int, str]]:
    """What each rank has asked for at the line of `wait`, which time this is, and what the others did that time."""
    site = wait.record.step.site
    visits = [_asked_at(site, view) if site is not None else [] for view in views]
    turn = len(visits[wait.rank]) - 1
    there = {rank: keys[turn] for rank, keys in enumerate(visits) if rank != wait.rank and len(keys) > turn >= 0}
    return visits, turn, there


def _awaits_key(lost: Mapping[int, Wait], rank: int) -> bool:
    return rank in lost and awaits_key(lost[rank].record.step)


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


def _asked_at(site: Site, view: LedgerView) -> list[str]:
    return [record.step.target for record in _asking(view) if record.step.site == site]


def _asking(view: LedgerView) -> list[Record]:
    records = view.where(lambda kind, state: kind is Kind.STORE and state is not State.RAISED)
    return [record for record in records if record.step.op in STORE_WAITS]


def set_by(view: LedgerView) -> set[str]:
    """The keys that a rank has set."""
    return {record.step.target for record in _setting(view)}


def _setting(view: LedgerView) -> list[Record]:
    records = view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED)
    return [record for record in records if record.step.op in SETTING]
