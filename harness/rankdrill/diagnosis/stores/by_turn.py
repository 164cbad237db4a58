"""A key of each round, set by the rank that waits beside it: one that has gone past its turn will not be set.

And one whose turn has not come may be: who waits in the round before for a key of that round has still to come to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rankdrill.diagnosis.stores.keys import SETTING, awaits_key
from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.uses import number_in, numbers_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import STORE_WAITS, Kind

__all__ = ["set_before_its_turn_passed", "turn_is_over", "turn_is_to_come"]

FEWEST = 2  # keys, set at as many turns, that say at which the next one is due


def set_before_its_turn_passed(key: str, wait: Wait, view: LedgerView) -> Record | None:
    """Where the rank that is in `wait` has set the last key of the kind, if it has come past the turn of this one.

    Turns are counted by how often it has come to where it waits now. None where it may still come to set `key`.
    """
    site = wait.record.step.site
    if site is None or view.dropped:
        return None
    turns = [record.index for record in view.records if record.step.site == site]
    found: dict[int, list[tuple[int, int, Record]]] = {}
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        differs = number_in(key, record.step.target) if record.step.op in SETTING else None
        if differs is not None:
            place, wanted, number = differs
            due = wanted - number + sum(turn < record.index for turn in turns)
            found.setdefault(place, []).append((number, due, record))
    for of_place in found.values():
        numbers, dues = {number for number, _, _ in of_place}, {due for _, due, _ in of_place}
        now = sum(turn <= wait.record.index for turn in turns)
        if len(numbers) >= FEWEST and len(dues) == 1 and now > dues.pop():
            return of_place[-1][2]
    return None


def turn_is_to_come(key: str, wait: Wait, view: LedgerView) -> bool:
    """Whether the rank that is in `wait` sets such a key each round, and is in a round before that of `key`.

    So it is if it waits for a key of an earlier number, where both begin alike; or of the same one, if it has got that
    before it set the other the last time.
    """
    if not awaits_key(wait.record.step) or view.dropped:
        return False
    for place, wanted, newest in _rounds(key, view):
        awaited = wait.record.step.target
        begins = words_of(key)[: place + 1]
        if words_of(awaited)[: place + 1] != begins or wanted <= newest:
            continue
        now = numbers_in(awaited)[place]
        if now < wanted or (now == wanted and _got_first(key, awaited, place, view)):
            return True
    return False


def turn_is_over(key: str, wait: Wait, view: LedgerView) -> bool:
    """Whether the rank that is in `wait` is in a round behind that of `key`, as it has asked there, round by round."""
    step = wait.record.step
    if not awaits_key(step) or view.dropped:
        return False
    asked = {
        record.step.target for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED)
    }
    for place, now in enumerate(numbers_in(step.target)):
        begins = words_of(step.target)[: place + 1]
        before = any(number_in(step.target, other) == (place, now, now - 1) for other in asked)
        numbers = numbers_in(key)
        if words_of(key)[: place + 1] == begins and before and numbers[:place] == numbers_in(step.target)[:place]:
            return numbers[place] < now
    return False


def _rounds(key: str, view: LedgerView) -> Iterator[tuple[int, int, int]]:
    """Of numbers in `key` in which the rank has set others: which it is, as it is there, and the greatest set."""
    found: dict[int, tuple[int, int]] = {}
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        differs = number_in(key, record.step.target) if record.step.op in SETTING else None
        if differs is not None:
            place, wanted, number = differs
            found[place] = wanted, max(number, found.get(place, (0, number))[1])
    for place, (wanted, newest) in found.items():
        yield place, wanted, newest


def _got_first(key: str, awaited: str, place: int, view: LedgerView) -> bool:
    """Whether, in the last round in which the rank did both, it got one like `awaited` before it set one like `key`."""
    got: dict[int, int] = {}
    order = None
    for record in view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED):
        words = words_of(record.step.target)
        if record.step.op in STORE_WAITS and words == words_of(awaited):
            got.setdefault(numbers_in(record.step.target)[place], record.index)
        elif record.step.op in SETTING and words == words_of(key):
            order = numbers_in(record.step.target)[place] in got
    return bool(order)
