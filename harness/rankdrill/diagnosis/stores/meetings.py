"""Ranks that wait at a store for others to come there: who has left it out, or has gone to another place.

The fewer are at fault: those that have not come, or those that have. Who waits at a place of its own, in the turn in
which the others are at theirs, has named a wrong one; who waits for another number than the others has a wrong one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.conditions import with_condition
from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.passed import is_behind
from rankdrill.diagnosis.calls.source import Order, comes_later, order_of
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.stores.keys import awaits_key, awaits_meeting
from rankdrill.diagnosis.stores.source import sets_later
from rankdrill.diagnosis.stores.uses import number_in
from rankdrill.diagnosis.waits import Wait, hopeless
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import JOINS_STORE, STORE_MEETS, Kind, Meeting, Site, Step

__all__ = ["given_up", "not_met"]


@dataclass(frozen=True)
class _Place:
    """Where ranks have come, each in `came`; `lost` are all that wait for ever, and `views` what ranks have done."""

    came: Mapping[int, Step]
    lost: Mapping[int, Wait]
    returned: Collection[int]
    views: Sequence[LedgerView]

    @property
    def step(self) -> Step:
        return next(iter(self.came.values()))

    @property
    def absent(self) -> list[int]:
        return [rank for rank in range(len(self.views)) if rank not in self.came]

    @property
    def name(self) -> str:
        return f"{'TCPStore' if self.step.op == JOINS_STORE else f'store.{self.step.op}'} on {self.step.target!r}"


def not_met(
    lost: Mapping[int, Wait], running: Collection[int], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where ranks wait at a store for others; None if the others wait for ever without that, too.

    `lost` are all that wait for ever, while `running` may still come and `returned` have come to their end.
    """
    waiting = {rank: wait for rank, wait in lost.items() if awaits_meeting(wait.record.step)}
    if not waiting or any(view.dropped for view in views):
        return None
    others = {rank: wait for rank, wait in lost.items() if rank not in waiting}
    here = Counter(wait.record.step.digest for wait in waiting.values())
    places = [_Place(_came(digest, views), lost, returned, views) for digest in here]
    place = max(places, key=lambda each: (*_lets_down(each, waiting), here[each.step.digest]))
    elsewhere = [wait for rank, wait in others.items() if rank in place.absent]
    if hopeless(others, {*running, *waiting, *place.absent}) or any(
        _set_by_none(wait, waiting, len(views)) for wait in elsewhere
    ):
        return None  # nor would they go on if all had come
    return _of_numbers(place) or _of_places(place, waiting) or with_condition(_of_ranks(place), views)


def given_up(
    asked: Mapping[int, Record], waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where ranks gave up what they `asked` for at a store; `waits` are those of the others.

    None where all have come since: too late, and that is told as it was raised.
    """
    lost = dict(waits)
    for rank, record in asked.items():
        came = _came(record.step.digest, views)
        absent = tuple(other for other in range(len(views)) if other not in came)
        if not absent:
            return None
        lost[rank] = Wait(rank, replace(record, state=State.WAITING), absent)
    return not_met(lost, set(range(len(views))) - lost.keys() - set(returned), returned, views)


def _lets_down(place: _Place, waiting: Mapping[int, Wait]) -> tuple[bool, bool, bool]:
    """Whether who is not there waits at no other place for others; somebody there waits for all, not only for one that
    serves them; and somebody has gone past it.
    """
    root = not any(rank in waiting for rank in place.absent)
    whole = any(Meeting.of(step).waits_for_all for rank, step in place.came.items() if rank in waiting)
    return root, whole, any(_has_skipped(rank, place) for rank in waiting)


def _set_by_none(wait: Wait, waiting: Mapping[int, Wait], size: int) -> bool:
    """Whether it is for a key that by the source none of those `waiting` is still to set, in a world of that size."""
    sites = {rank: other.record.step.site for rank, other in waiting.items()}
    return awaits_key(wait.record.step) and not any(
        site is not None and sets_later(rank, site, wait.record.step.target, size) for rank, site in sites.items()
    )


def _came(digest: int, views: Sequence[LedgerView]) -> dict[int, Step]:
    """By rank the newest time that it has come there; of a store made again and again those that came the last time."""
    times = {rank: [record.step for record in _meetings(view, digest)] for rank, view in enumerate(views)}
    last = max(map(len, times.values()))
    again = any(Meeting.of(step).serves for steps in times.values() for step in steps)
    return {rank: steps[-1] for rank, steps in times.items() if len(steps) >= (last if again else 1)}


def _meetings(view: LedgerView, digest: int | None = None) -> Iterator[Record]:
    records = view.where(lambda kind, _state: kind is Kind.STORE)
    return (each for each in records if each.step.op in STORE_MEETS and digest in (None, each.step.digest))


def _of_numbers(place: _Place) -> Finding | None:
    """That they wait for different numbers of ranks, or all for more than there are."""
    wanted = {rank: meeting.wanted for rank, step in place.came.items() if (meeting := Meeting.of(step)).waits_for_all}
    if not wanted:
        return None
    (usual, most), *more = Counter(wanted.values()).most_common()
    odd = tuple(rank for rank, number in wanted.items() if number != usual)
    if not odd and usual <= len(place.views):
        return None
    clear = bool(odd) and most > 1 and len(odd) < most
    numbers = [*(number for number, _ in more), usual]
    by_number = {number: [rank for rank, each in wanted.items() if each == number] for number in numbers}
    there = "" if odd else f", and there are {len(place.views)}"
    sides = [
        _side(ranks, f"{_s('wait', ranks)} for {number} ranks in {place.name}{there}", place)
        for number, ranks in by_number.items()
    ]
    return Finding(FindingKind.SIZE, place.name, "number of ranks", tuple(sides), odd if clear else ())


def _of_places(place: _Place, waiting: Mapping[int, Wait]) -> Finding | None:
    """That ranks wait at places of their own, where they have come as often as the others to theirs."""
    odd = [rank for rank in place.absent if rank in waiting]
    turn = {rank: sum(1 for _ in _meetings(view)) for rank, view in enumerate(place.views)}
    turns = {turn[rank] for rank in (*place.came, *odd)}
    enough = len(odd) in (len(place.absent), Meeting.of(place.step).wanted - len(place.came))
    if not odd or not enough or len(turns) != 1 or any(_has_skipped(rank, place) for rank in odd):
        return None
    sides = [_side([rank], _waits([rank], place.lost), place, place.lost[rank].record.step.site) for rank in odd]
    sides.append(_there(place))
    clear = len(odd) < len(place.came)
    return Finding(FindingKind.MISSING_KEY, place.step.target, "key", tuple(sides), tuple(odd) if clear else ())


def _has_skipped(rank: int, place: _Place) -> bool:
    """Whether the place lies by its number between the two where the rank was last: it has gone past it."""
    name = place.step.target
    *_, before, last = ["", "", *(record.step.target for record in _meetings(place.views[rank]))]
    came, goes = number_in(before, name), number_in(name, last)
    return came is not None and goes is not None and came[0] == goes[0] and came[1] < came[2] < goes[2]


def _of_ranks(place: _Place) -> Finding:
    """That some have not come, or that others should not have."""
    absent, came = _meant(place), list(place.came)
    if not absent:  # all have, and none of them serves it
        return Finding(FindingKind.MISSING, place.name, "", (_there(place),))
    elsewhere = {rank: place.lost[rank].record.step for rank in absent if rank in place.lost}
    now = list(_now(absent, place))
    if len(absent) < len(came) and elsewhere and all(_comes_later(rank, place) for rank in elsewhere):
        return _other_call(absent, elsewhere, place)
    if len(came) < len(absent):
        makes = _side(came, f"{_s('make', came)} one call more, {place.name}", place)
        return Finding(FindingKind.EXTRA, place.name, "", (makes, *now), tuple(came))
    leaves = _side(absent, f"{_s('leave', absent)} out {place.name}", place, place.step.site)
    clear = len(absent) < len(came) or all(_has_skipped(rank, place) for rank in absent)
    culprits = tuple(absent) if clear else ()
    return Finding(FindingKind.MISSING, place.name, "", (leaves, *now, _there(place)), culprits)


def _meant(place: _Place) -> list[int]:
    """Those that have not come and are waited for: where not all are, those that used to come to such a line."""
    wanted = Meeting.of(place.step).wanted or len(place.views)
    if wanted - len(place.came) >= len(place.absent):
        return place.absent
    site = place.step.site
    usual = [rank for rank in place.absent if any(each.step.site == site for each in _meetings(place.views[rank]))]
    return usual or place.absent


def _comes_later(rank: int, place: _Place) -> bool:
    """Whether the rank would come to the place only after what it waits in, or has come to that instead of it."""
    wait, here = place.lost[rank], place.step.site
    at = wait.record.step.site
    if at is None or here is None or awaits_meeting(wait.record.step) or is_behind(place.step, wait, place.views):
        return False
    at, here = from_one_function(at, here)
    further = share_a_loop(at, here) and all(
        _visits(rank, at, place) > _visits(other, at, place) for other in place.came
    )
    return not further and order_of(at, here) in (Order.AFTER, Order.APART)


def _visits(rank: int, site: Site, place: _Place) -> int:
    records = place.views[rank].where(lambda kind, _state: kind in (Kind.COLLECTIVE, Kind.STORE))
    return sum(record.step.site == site for record in records)


def _other_call(absent: Sequence[int], elsewhere: Mapping[int, Step], place: _Place) -> Finding:
    """That a few are in another call first: one that the others have still to come to, or one too many."""
    here = place.step.site
    turned = here is not None and any(
        step.site is not None and comes_later({_public(step)}, from_one_function(step.site, here)[1])
        for step in elsewhere.values()
    )
    kind = FindingKind.CALL_ORDERING if turned else FindingKind.EXTRA
    return Finding(kind, place.name, "order", (*_now(absent, place), _there(place)), tuple(absent))


def _public(step: Step) -> str:
    return (step.site.via if step.site is not None else "") or step.op


def _there(place: _Place) -> Side:
    ranks = [rank for rank in place.came if rank in place.lost] or list(place.came)
    meeting = Meeting.of(place.came[ranks[0]])
    lacks = f" ({len(place.came)} of {meeting.wanted} have come)" if meeting.waits_for_all else ", which nobody serves"
    return _side(ranks, f"{_s('wait', ranks)} in {place.name}{lacks}", place)


def _now(ranks: Sequence[int], place: _Place) -> Iterator[Side]:
    """Where they are instead."""
    there: dict[object, list[int]] = {}
    for rank in ranks:
        wait = place.lost.get(rank)
        there.setdefault((wait.record.step.op, wait.record.step.site) if wait else rank, []).append(rank)
    for those in there.values():
        if those[0] in place.lost:
            yield _side(those, _waits(those, place.lost), place, place.lost[those[0]].record.step.site)
        elif those[0] in place.returned:
            after, site = words.last_call(place.views[those[0]])
            yield _side(those, f"returned{after}", place, site)


def _waits(ranks: Sequence[int], lost: Mapping[int, Wait]) -> str:
    step = lost[ranks[0]].record.step
    if awaits_meeting(step):
        return f"{_s('wait', ranks)} in {_Place({ranks[0]: step}, lost, (), ()).name}"
    told = words.waits(lost[ranks[0]].record)
    return told if len(ranks) == 1 else told.replace("waits", "wait", 1)


def _side(ranks: Sequence[int], did: str, place: _Place, site: Site | None = None) -> Side:
    sites = [site if rank not in place.came else place.came[rank].site for rank in ranks]
    return side_of(ranks, did, sites)


def _s(verb: str, ranks: Sequence[int]) -> str:
    return f"{verb}s" if len(ranks) == 1 else verb
