"""Keys that differ in a number: who was to set the one that is missing, as those that were set and got tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from rankdrill.diagnosis.stores.source import is_set_there_by
from rankdrill.diagnosis.stores.uses import Use, number_in, numbers_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, State
from rankdrill.step import Kind

__all__ = [
    "counted_itself",
    "has_drawn_it",
    "who_did_not",
    "who_left_a_gap",
    "who_set_one_too_few",
    "who_sets_for_each",
]


def who_did_not(key: str, waiters: Sequence[int], uses: Sequence[Use], size: int) -> tuple[int, ...] | None:
    """Where ranks set keys of their own numbers: who has not, or who wants one of a rank that there is not.

    Keys may have several numbers, such as that of the round: each may be the rank's, if one alone is.
    """
    rows = _rows(key, [use for use in uses if use.sets])
    found = [_who_has_not(wanted, setters, waiters, size) for wanted, setters in rows]
    told = [ranks for ranks in found if ranks is not None]
    return told[0] if len(told) == 1 else None


def _who_has_not(
    wanted: int, setters: Mapping[int, set[int]], waiters: Sequence[int], size: int
) -> tuple[int, ...] | None:
    """Those whose number is missing among the `setters`, which have each set that of their own."""
    if len(setters) < 2 or any(ranks != {number} for number, ranks in setters.items()):
        return None
    without = tuple(rank for rank in range(size) if rank not in setters)
    if wanted in without:
        return without if len(without) < len(setters) else None
    if wanted >= size and {*without} <= {*waiters}:  # who collects them sets none
        return tuple(waiters) if 2 * len(waiters) <= size else ()
    return None


def who_left_a_gap(key: str, waiters: Sequence[int], uses: Sequence[Use], size: int) -> tuple[int, ...] | None:
    """The one rank that sets all such keys, one number after the other, and has gone on without this one.

    So it has, too, if all wait for the next one, itself among them.
    """
    found = set()
    for wanted, setters in _rows(key, [use for use in uses if use.sets]):
        ranks = frozenset().union(*setters.values())
        gone_on = max(setters) > wanted and ranks.isdisjoint(waiters)
        waits, next_ = len(waiters) == size, len(setters) > 1 and max(setters) == wanted - 1
        if len(ranks) == 1 and wanted - 1 in setters and (gone_on or (waits and next_)):
            found.add(ranks)
    return tuple(found.pop()) if len(found) == 1 else None


def who_sets_for_each(key: str, waiters: Sequence[int], uses: Sequence[Use]) -> tuple[int, ...] | None:
    """Where each gets a key of its own number, and so does the one that waits: who has set them for all others."""
    got, was_set = ([use for use in uses if use.sets is sets] for sets in (False, True))
    own = [
        wanted
        for wanted, getters in _rows(key, got)
        if [wanted] == list(waiters) and all(ranks == {number} for number, ranks in getters.items())
    ]
    if not own:
        return None
    setters = [row for wanted, row in _rows(key, was_set) if wanted in own and len(row) > 1]
    ranks = {rank for row in setters for those in row.values() for rank in those}
    return tuple(ranks) if len(ranks) == 1 and ranks.isdisjoint(waiters) else ()


def who_set_one_too_few(
    key: str, wait: Wait, uses: Sequence[Use], views: Sequence[LedgerView]
) -> tuple[int, ...] | None:
    """Where ranks draw their numbers from one counter, each its own, and one has drawn the next after the last that was
    set: the one rank that sets them.
    """
    drawn = {rank: counter for rank, view in enumerate(views) if (counter := _counter(view)) is not None}
    if wait.rank not in drawn or len(set(drawn.values())) != 1:
        return None
    got = [row for _, row in _rows(key, [use for use in uses if not use.sets and use.rank in drawn])]
    for wanted, row in _rows(key, [use for use in uses if use.sets]):
        setters = frozenset().union(*row.values())
        each_its_own = any(len(those) > 1 and all(len(ranks) == 1 for ranks in those.values()) for those in got)
        if each_its_own and len(setters) == 1 and setters.isdisjoint(drawn) and max(row) == wanted - 1:
            return tuple(setters)
    return None


def counted_itself(wait: Wait, uses: Sequence[Use]) -> bool:
    """Whether it has drawn the number that it waits for, and whoever else draws one sets the key of that next.

    Nobody else has that number, then: who asks for the newest was to look at the counter, and not to count.
    """
    drawn = _drawn_before(wait, uses)
    others = [use for use in drawn if use.rank != wait.rank]
    rows = _rows(wait.record.step.target, [use for use in uses if use.sets])
    return any(wanted == len(drawn) and _set_what_was_drawn(row, others, uses, {wanted}) for wanted, row in rows)


def asks_for_none_that_was_drawn(wait: Wait, uses: Sequence[Use]) -> bool:
    """Whether it waits for the key of number 0, where each that has drawn a number from a counter has set that of its
    own next: the first one is 1.
    """
    counters = {use.record.step.digest for use in uses if use.record.step.op == "add"}
    for wanted, row in _rows(wait.record.step.target, [use for use in uses if use.sets]):
        if wanted == 0 and any(_set_what_was_drawn(row, _drawn(counter, uses), uses) for counter in counters):
            return True
    return False


def _set_what_was_drawn(
    row: Mapping[int, set[int]], drawn: Sequence[Use], uses: Sequence[Use], besides: Set[int] = frozenset()
) -> bool:
    """Whether each that has drawn a number, several times in all, has set the key of one in `row` next: with those
    `besides` all from 1 on.
    """
    numbers = {_next(use, uses): use.rank for use in drawn}
    each_its_own = all(number is not None and row.get(number) == {rank} for number, rank in numbers.items())
    return len(drawn) > 1 and each_its_own and {*numbers, *besides} == set(range(1, len(drawn) + len(besides) + 1))


def _next(use: Use, uses: Sequence[Use]) -> int | None:
    """The last number in the key that its rank has set next."""
    own = [each for each in uses if each.rank == use.rank and each.sets]
    behind = own[own.index(use) + 1 :]
    return numbers_in(behind[0].key)[-1] if behind and numbers_in(behind[0].key) else None


def who_kept_it(key: str, waiters: Sequence[int], uses: Sequence[Use]) -> tuple[int, ...] | None:
    """Where each that got such a key has set that of the next number: the one that got the last, and has not."""
    was_set = dict(_rows(key, [use for use in uses if use.sets]))
    for wanted, got in _rows(key, [use for use in uses if not use.sets]):
        last = got.pop(wanted - 1, set())
        if len(last) != 1 or not last.isdisjoint(waiters):
            continue
        row = was_set.get(wanted, {})
        began = row.get(wanted - 1, set())
        passed_on = all(row.get(number + 1) == ranks for number, ranks in got.items())
        if got:
            if passed_on and max(got) < wanted:
                return tuple(last)
        elif any(
            is_set_there_by(use.record.step.site, key, min(last)) for use in uses if use.sets and use.rank in began
        ):
            return tuple(last)  # who began has set that of its own number as this one was to
    return None


def has_drawn_it(wait: Wait, uses: Sequence[Use]) -> bool:
    """Whether a number in the key that it waits for may be the one that it has drawn from a counter just before."""
    drawn = _drawn_before(wait, uses)
    return any(0 < number <= len(drawn) for number in numbers_in(wait.record.step.target))


def _drawn_before(wait: Wait, uses: Sequence[Use]) -> Sequence[Use]:
    """Who has drawn numbers from the counter that this rank has counted up just before; none if not so."""
    mine = next((use for use in reversed(uses) if use.rank == wait.rank and use.sets), None)
    if mine is None or mine.record.step.op != "add" or mine.record.index > wait.record.index:
        return ()
    return _drawn(mine.record.step.digest, uses)


def _drawn(counter: int, uses: Sequence[Use]) -> Sequence[Use]:
    """Each time that it was counted up; which number that gave only the next call says."""
    return [use for use in uses if use.record.step.op == "add" and use.record.step.digest == counter]


def _counter(view: LedgerView) -> int | None:
    """Which key the rank has counted up last."""
    calls = view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED)
    return next((record.step.digest for record in reversed(list(calls)) if record.step.op == "add"), None)


def _rows(key: str, uses: Sequence[Use]) -> Iterator[tuple[int, dict[int, set[int]]]]:
    """For each number in `key`: that number, and by which ranks keys were used that have another one there alone."""
    rows: dict[int, tuple[int, dict[int, set[int]]]] = {}
    for use in uses:
        differs = number_in(key, use.key)
        if differs is not None:
            place, wanted, number = differs
            rows.setdefault(place, (wanted, {}))[1].setdefault(number, set()).add(use.rank)
    yield from rows.values()
