"""A key of each round, set by the rank that waits beside it: one that has gone past its turn will not be set."""

from __future__ import annotations

from rankdrill.diagnosis.stores.keys import SETTING
from rankdrill.diagnosis.stores.uses import number_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import Kind

__all__ = ["set_before_its_turn_passed"]

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
