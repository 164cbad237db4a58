"""A key of each round, set by the rank that waits beside it: one that has gone past its turn will not be set.

And one whose turn has not come may be: who waits in the round before for a key of that round has still to come to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.stores.calls import StoreCalls
from rankdrill.diagnosis.stores.keys import SETTING, awaits_key
from rankdrill.diagnosis.stores.spelling import words_of
from rankdrill.diagnosis.stores.uses import number_in, numbers_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import NO_SEQUENCE, Kind, Step

__all__ = ["set_before_it_went_on", "set_before_its_turn_passed", "turn_is_over", "turn_is_to_come"]

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


def set_before_it_went_on(key: str, rank: int, lost: Mapping[int, Wait], views: Sequence[LedgerView]) -> Record | None:
    """Where `rank` has set the last key of the kind, if it is in a collective that those that wait for `key` come to
    only behind it: so many had each made when it set, and they asked for, the key of a round before, in which there
    were fewer.
    """
    meeting = lost[rank].record.step
    if meeting.sequence == NO_SEQUENCE or any(view.dropped for view in views):
        return None
    waiting = [each for each in lost.values() if awaits_key(each.record.step) and each.record.step.target == key]
    mine = {record.step.target: record for record in _keys_of(views[rank]) if record.step.op in SETTING}
    found: Record | None = None
    for wait in waiting:
        view = views[wait.rank]
        before = [each for each in _keys_of(view) if number_in(key, each.step.target) and each.step.target in mine]
        asked = [each for each in before if each.step.site == wait.record.step.site]
        beside = all(
            _made(meeting, each, view) == _made(meeting, mine[each.step.target], views[rank]) for each in asked
        )
        made = _made(meeting, wait.record, view)
        if not asked or not beside or not _made(meeting, asked[-1], view) < made <= meeting.sequence:
            return None
        found = mine[asked[-1].step.target]
    return found


def _keys_of(view: LedgerView) -> list[Record]:
    return list(view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED))


def _made(meeting: Step, record: Record, view: LedgerView) -> int:
    """How many collectives of the group of `meeting` the rank had begun before `record`."""
    calls = view.where(lambda kind, state: kind is Kind.COLLECTIVE)
    steps = (each.step for each in calls if each.index < record.index)
    return sum(step.target == meeting.target and step.sequence != NO_SEQUENCE for step in steps)


def turn_is_to_come(key: str, wait: Wait, calls: StoreCalls) -> bool:
    """Whether the rank that is in `wait` sets such a key each round, and is in a round before that of `key`.

    So it is if it waits for a key of an earlier number, where both begin alike; or of the same one, if it has got that
    before it set the other the last time.
    """
    awaited = wait.record.step.target
    alike = words_of(awaited)[0] == words_of(key)[0] and awaited != key
    if not alike or not awaits_key(wait.record.step) or not calls.whole:
        return False
    for place, wanted, newest in calls.rounds(key, wait.rank):
        now = _round_in(awaited, key, place)
        if now is None or wanted <= newest:
            continue
        if now < wanted or (now == wanted and _got_first(key, awaited, place, wait.rank, calls)):
            return True
    return False


def turn_is_over(key: str, wait: Wait, calls: StoreCalls) -> bool:
    """Whether the rank that is in `wait` is in a round behind that of `key`, as it has asked there, round by round."""
    awaited = wait.record.step.target
    if not awaits_key(wait.record.step) or not calls.whole or words_of(awaited)[0] != words_of(key)[0]:
        return False
    asked = {record.step.target for record in calls.asks[wait.rank]}
    for place, now in enumerate(numbers_in(awaited)):
        wanted = _round_in(key, awaited, place)
        if wanted is None or numbers_in(key)[:place] != numbers_in(awaited)[:place]:
            continue
        if any(number_in(awaited, other) == (place, now, now - 1) for other in asked):
            return wanted < now
    return False


def _round_in(key: str, other: str, place: int) -> int | None:
    """The number in `key` where `other` has the one at `place`; None where it does not begin as that one does."""
    numbers = numbers_in(key)
    if len(numbers) <= place or words_of(key)[: place + 1] != words_of(other)[: place + 1]:
        return None
    return numbers[place]


def _got_first(key: str, awaited: str, place: int, rank: int, calls: StoreCalls) -> bool:
    """Whether, in the last round in which the rank did both, it got one like `awaited` before it set one like `key`."""
    got: dict[int, int] = {}
    for record in calls.asks[rank]:
        if record.state is State.ENDED and words_of(record.step.target) == words_of(awaited):
            got.setdefault(numbers_in(record.step.target)[place], record.index)
    own = [record for record in calls.sets[rank] if words_of(record.step.target) == words_of(key)]
    return bool(own) and got.get(numbers_in(own[-1].step.target)[place], own[-1].index) < own[-1].index
