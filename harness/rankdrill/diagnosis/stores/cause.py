"""Why ranks wait for ever where some of them wait for keys of a store, or for file locks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from rankdrill.diagnosis.calls.passed import gone_past
from rankdrill.diagnosis.deadlock import circle_in, deadlock_of
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.messages.sent_to_anybody import short_of_anybody
from rankdrill.diagnosis.stores.by_custom import asks_unlike_the_others, set_once_more
from rankdrill.diagnosis.stores.by_turn import (
    set_before_it_went_on,
    set_before_its_turn_passed,
    turn_is_over,
    turn_is_to_come,
)
from rankdrill.diagnosis.stores.calls import StoreCalls
from rankdrill.diagnosis.stores.file_locks import holds_alone, in_another_order, taken_in
from rankdrill.diagnosis.stores.in_rounds import comes_round_to
from rankdrill.diagnosis.stores.keys import awaits_key, awaits_lock, awaits_meeting
from rankdrill.diagnosis.stores.lock_files import makes_alone
from rankdrill.diagnosis.stores.meetings import not_met
from rankdrill.diagnosis.stores.missing import missing_key
from rankdrill.diagnosis.stores.other_key import asked_for_another
from rankdrill.diagnosis.stores.source import sets_later
from rankdrill.diagnosis.waits import Wait, hopeless
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import NO_SEQUENCE

__all__ = ["apart", "cause_apart"]

_LAST_NUMBER = re.compile(r"(\d+)\D*$")


def apart(wait: Wait) -> bool:
    """Whether it waits for a key, for others at a store or for a lock, and not in a call of a group."""
    step = wait.record.step
    return awaits_key(step) or awaits_meeting(step) or awaits_lock(step)


def cause_apart(inside: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]) -> Finding | None:
    """A circle through keys and locks, or a key that nobody sets; None where something else is the cause.

    `inside` is what each rank that is inside a step waits for there.
    """
    running = set(range(len(views))) - inside.keys() - set(returned)
    lost = hopeless(inside, running)
    if (unmet := not_met(lost, running, returned, views)) is not None:
        return unmet
    everybody = lost
    meeting = {rank for rank, wait in lost.items() if awaits_meeting(wait.record.step)}
    inside, lost = ({rank: wait for rank, wait in those.items() if rank not in meeting} for those in (inside, lost))
    running |= meeting  # they would come, did those that they wait for
    beside = {rank for rank, wait in lost.items() if apart(wait)}
    if not beside:
        return None
    found = asked_for_another([lost[rank] for rank in sorted(beside)], views)
    if found is not None:
        return found
    calls = StoreCalls(views)
    alone = [
        rank for rank in beside if awaits_key(lost[rank].record.step) and asks_unlike_the_others(lost[rank], calls)
    ]
    if len(alone) == 1:
        return missing_key({rank: lost[rank] for rank in alone}, everybody, views)
    keys = {wait.record.step.target for wait in lost.values() if awaits_key(wait.record.step)}
    replaced = {key for key in keys if set_once_more(key, calls) is not None}
    if len(replaced) == 1:
        waiting = {rank: lost[rank] for rank in beside if lost[rank].record.step.target in replaced}
        return missing_key(waiting, everybody, views)
    setters = {key: _may_set(key, lost, views, calls) for key in keys}
    meant = {rank: _meant(wait, setters) for rank, wait in lost.items()}
    for first in sorted(beside):
        together = _round(first, meant)
        if together:
            if (past := _past_a_collective(together, lost, returned, views)) is not None:
                return past
            if (short := _short_of_anybody(together, lost, views)) is not None:
                return short
            together |= {rank for rank in beside if any(_alike(meant[rank], meant[other]) for other in together)}
            return _deadlock({rank: meant[rank] for rank in sorted(together)}, views)
    rest = {rank: wait for rank, wait in inside.items() if rank not in beside}
    if hopeless(rest, running | beside):
        return None
    # Who would come to set a key, did it not wait for one itself, is held up, as those are that wait for it.
    roots = {_what(lost[rank]) for rank in beside if awaits_key(lost[rank].record.step) and not meant[rank].missing}
    rooted = {rank for rank in beside if _what(lost[rank]) in roots}
    return missing_key({rank: lost[rank] for rank in rooted or beside}, everybody, views) or _never_given_up(
        {rank: lost[rank] for rank in sorted(beside)}, returned, views
    )


def _past_a_collective(
    together: Collection[int], lost: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where one of a circle waits for a key, and has gone past the collective that others wait in."""
    outside = [lost[rank] for rank in together if awaits_key(lost[rank].record.step)]
    inside = [lost[rank] for rank in together if lost[rank].record.step.sequence != NO_SEQUENCE]
    for wait in inside:
        for other in outside:
            found = gone_past(wait, other, lost, returned, views) if other.rank in wait.missing else None
            if found is not None and found.kind is FindingKind.MISSING and found.culprits:
                return found
    return None


def _short_of_anybody(
    together: Collection[int], lost: Mapping[int, Wait], views: Sequence[LedgerView]
) -> Finding | None:
    """Who has left out a message that one of a circle takes from anybody: it waits for that rank alone, not for all."""
    taking = {rank for rank in together if lost[rank].anyone and lost[rank].record.step.message is not None}
    found = short_of_anybody(lost, views) if taking else None
    if found is None or found.kind is not FindingKind.UNMATCHED or not found.culprits:
        return None
    return found if taking & {rank for side in found.sides for rank in side.ranks} else None


def _alike(one: Wait, other: Wait) -> bool:
    """Whether both wait for one key, at one line."""
    mine, theirs = one.record.step, other.record.step
    return awaits_key(mine) and (mine.digest, mine.site) == (theirs.digest, theirs.site) and mine.site is not None


def _what(wait: Wait) -> int:
    return wait.record.step.digest


def _may_set(key: str, lost: Mapping[int, Wait], views: Sequence[LedgerView], calls: StoreCalls) -> frozenset[int]:
    """The ranks whose source sets `key` further on than where they wait, and that have not come past its turn.

    And those that set such a key at each turn, if its turn has still to come.
    """
    sites = {rank: wait.record.step.site for rank, wait in lost.items()}
    return frozenset(
        rank
        for rank, site in sites.items()
        if turn_is_to_come(key, lost[rank], calls)
        or (
            site is not None
            and (sets_later(rank, site, key, calls.size) or comes_round_to(key, lost[rank], calls))
            and set_before_its_turn_passed(key, lost[rank], views[rank]) is None
            and set_before_it_went_on(key, rank, lost, views) is None
            and not turn_is_over(key, lost[rank], calls)
            and not _has_gone_by_it(key, rank, lost, calls)
        )
    )


def _has_gone_by_it(key: str, rank: int, lost: Mapping[int, Wait], calls: StoreCalls) -> bool:
    """Whether all others that wait where `rank` does, for the same, have set such a key each, of their own number."""
    step = lost[rank].record.step
    beside = [other for other, wait in lost.items() if other != rank and _alike(wait, lost[rank])]
    own = {other: _own(key, rank, other) for other in beside}
    return (
        len(beside) > 1
        and step.target != key
        and all(theirs is not None and theirs in calls.names[other] for other, theirs in own.items())
    )


def _own(key: str, rank: int, other: int) -> str | None:
    """What `key`, whose last number is that of `rank`, is for another one."""
    number = _LAST_NUMBER.search(key)
    if number is None or int(number[1]) != rank:
        return None
    return f"{key[: number.start(1)]}{other}{key[number.end(1) :]}"


def _meant(wait: Wait, setters: Mapping[str, Set[int]]) -> Wait:
    """`wait`, for those alone that are to do what it waits for: for a key, those of `setters` that may set it."""
    if not awaits_key(wait.record.step):
        return wait
    key = wait.record.step.target
    those = [other for other in wait.missing if other in setters[key]]
    number = _LAST_NUMBER.search(key)
    named = [other for other in those if number is not None and int(number[1]) == other]
    return replace(wait, missing=tuple(named or those))


def _round(first: int, waits: Mapping[int, Wait]) -> set[int]:
    """The ranks that `first` waits for and that wait for it, itself among them; nothing if there are none."""
    those = {rank for rank in _reached([first], waits) if first in _reached([rank], waits)}
    return those | {first} if those else set()


def _reached(ranks: Iterable[int], waits: Mapping[int, Wait]) -> Set[int]:
    """Whom `ranks` wait for, and whom these do, and so on."""
    found: set[int] = set()
    left = list(ranks)
    while left:
        for other in waits[left.pop()].missing:
            if other in waits and other not in found:
                found.add(other)
                left.append(other)
    return found


def _deadlock(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding:
    circle = [waits[rank] for rank in circle_in(waits)]
    holding = {wait.missing[0]: wait for wait in waits.values() if awaits_lock(wait.record.step)}
    sides: dict[object, list[int]] = {}
    for rank, wait in waits.items():
        step = wait.record.step
        sides.setdefault((step.op, step.target, step.site, rank in holding), []).append(rank)
    told = [_side(ranks, waits, holding, views) for ranks in sides.values()]
    return deadlock_of(circle, told, holds_alone(waits, holding, views) or in_another_order(holding, views))


def _never_given_up(
    waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where all that `waits` are for is one lock, and who holds it has come to its end."""
    (key, *more) = {(wait.record.step.target, wait.missing) for wait in waits.values()}
    target, holders = key
    if more or len(holders) != 1 or holders[0] not in returned:
        return None
    (holder,) = holders
    lock = waits[min(waits)].record
    taken = taken_in(lock, views[holder])
    if taken is None or not makes_alone(taken.step):  # a lock is given up, too, where its file is closed
        return None
    held = side_of([holder], f"has taken {target!r}, has not given it up, and returned", [taken.step.site])
    waiting = side_of(
        list(waits), _waits(lock, plural=len(waits) > 1), [wait.record.step.site for wait in waits.values()]
    )
    return Finding(FindingKind.STUCK_RANK, f"lock of {target!r}", "lock", (held, waiting), (holder,))


def _side(
    ranks: Sequence[int], waits: Mapping[int, Wait], holding: Mapping[int, Wait], views: Sequence[LedgerView]
) -> Side:
    record = waits[ranks[0]].record
    did = _waits(record, plural=len(ranks) > 1)
    lock = holding.get(ranks[0])
    if lock is not None:
        taken = taken_in(lock.record, views[ranks[0]])
        did = f"holds {lock.record.step.target!r}{taken.step.where if taken is not None else ''}, and {did}"
    return side_of(ranks, did, [waits[rank].record.step.site for rank in ranks])


def _waits(record: Record, *, plural: bool) -> str:
    step = record.step
    told = words.waits(record)
    if awaits_key(step):
        told = f"waits for the key {step.target!r}"
    elif awaits_lock(step):
        told = f"waits for the lock of {step.target!r}"
    return told.replace("waits", "wait", 1) if plural else told
