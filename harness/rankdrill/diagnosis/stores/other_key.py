"""One line by which all ranks get one key, turn by turn: who asks there for another one than the others got.

That it does so is why it waits, though somebody else may come to set its key later on, in the round behind this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import eq

from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.stores.keys import awaits_key
from rankdrill.diagnosis.stores.spelling import same_but_for_spelling
from rankdrill.diagnosis.stores.uses import number_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, State
from rankdrill.step import STORE_WAITS, Kind, Step

__all__ = ["asked_for_another"]

FEWEST_OTHERS = 2  # of two, one asks for another key than the other one: who is to say which is right?


def asked_for_another(waits: Sequence[Wait], views: Sequence[LedgerView]) -> Finding | None:
    """The one rank that waits for another key than all others got which came to its line as often; None if not one.

    Before, all that come to that line got there what it got: where each asks for the keys of its own, or of all others
    but its own, that says nothing. Nor is it the one if anybody else waits for that key, too.
    """
    if any(view.dropped for view in views):
        return None
    found = {wait.rank: others for wait in waits if (others := _instead(wait, waits, views))}
    if len(found) != 1:
        return None
    ((rank, others),) = found.items()
    step = next(wait.record.step for wait in waits if wait.rank == rank)
    got = next(iter(others.values())).target
    sides = (
        side_of([rank], f"waits for the key {step.target!r}, which nobody has set", [step.site]),
        side_of(list(others), f"got {got!r} at that turn of the line", [each.site for each in others.values()]),
    )
    return Finding(FindingKind.MISSING_KEY, f"key {step.target!r}", "key", sides, (rank,))


def _instead(wait: Wait, waits: Sequence[Wait], views: Sequence[LedgerView]) -> Mapping[int, Step]:
    """What the others got when they were as often at the line where it waits, if it is one other key."""
    step = wait.record.step
    wanted = [each.record.step.digest for each in waits if awaits_key(each.record.step)]
    if not awaits_key(step) or step.site is None or wanted.count(step.digest) > 1:
        return {}
    got = [_got_at(step, view) for view in views]
    awaited = _awaited_with(step, views[wait.rank])
    together = sorted(awaited if step in awaited else [step], key=_name)  # it has given up what is open no more
    before, place = [each.digest for each in got[wait.rank]], together.index(step)
    turn = len(before)
    rest = {rank: steps for rank, steps in enumerate(got) if rank != wait.rank and steps}
    there = {
        rank: sorted(steps[turn : turn + len(together)], key=_name)[place]
        for rank, steps in rest.items()
        if len(steps) >= turn + len(together)
    }
    as_before = all(_begins_as(before, [each.digest for each in steps], len(together)) for steps in rest.values())
    if len({each.digest for each in there.values()}) != 1:
        return {}
    if not before:  # the first time all have to be there, and to mean the same
        alike = all(_ends_alike(step, each) for each in there.values())
        return there if alike and len(there) == len(views) - 1 >= FEWEST_OTHERS else {}
    return there if as_before and all(_is_like(step, each) for each in there.values()) else {}


def _awaited_with(step: Step, view: LedgerView) -> list[Step]:
    """What a rank waits for in that call: one key, or several."""
    records = view.where(lambda kind, state: kind is Kind.STORE and state.open)
    return [record.step for record in records if (record.step.op, record.step.site) == (step.op, step.site)]


def _name(step: Step) -> str:
    return step.target


def _begins_as(before: Sequence[int], theirs: Sequence[int], together: int) -> bool:
    """Whether those have got what the rank has; of several keys in any order."""
    return all(map(eq, before, theirs)) or (together > 1 and not Counter(before) - Counter(theirs[: len(before)]))


def _ends_alike(awaited: Step, got: Step) -> bool:
    """Whether both are of one name, under another prefix."""
    one, other = awaited.target.split("/"), got.target.split("/")
    return len(one) == len(other) > 1 and one[-1] == other[-1] and not any(map(str.isdigit, one[-1]))


def _is_like(awaited: Step, got: Step) -> bool:
    one, other = awaited.target, got.target
    return number_in(one, other) is not None or same_but_for_spelling(one, other)


def _got_at(step: Step, view: LedgerView) -> list[Step]:
    """What a rank has got at the line of `step`."""
    records = view.where(lambda kind, state: kind is Kind.STORE and state is State.ENDED)
    steps = (record.step for record in records)
    return [each for each in steps if each.op in STORE_WAITS and (each.op, each.site) == (step.op, step.site)]
