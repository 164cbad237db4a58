"""Ranks that wait for such as have left: these left a call out, or those made one on top of what all made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import Parting, calls_on, parting
from rankdrill.diagnosis.calls.source import is_besides
from rankdrill.diagnosis.calls.whose_calls import comes_as, from_one_start, key_of, up_to
from rankdrill.diagnosis.calls.words import origin, returned_after, waiting_in
from rankdrill.diagnosis.finding import Finding, FindingKind, Side
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = ["left_behind", "on_top"]


def left_behind(waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where ranks wait in a collective for ranks that have returned; None where none do.

    `views` are the ledgers of all ranks. The fewer are at fault: those that returned have left a call out, or those
    that wait have made one more. Of as many nobody can say which, unless one half has come because of its rank; nor
    where those that still run may yet decide it.
    """
    wait = min((wait for wait in waits.values() if _is_for(wait, returned)), key=_since, default=None)
    if wait is None:
        return None
    step = wait.record.step
    away = sorted(set(wait.missing) & set(returned))
    # A backend may have let some of them go on.
    calls = {rank: made for rank, view in enumerate(views) if (made := calls_on(step.target, view).get(step.sequence))}
    calls |= {rank: other.record.step for rank, other in waits.items() if _same_call(other.record.step, step)}
    here = sorted(calls)
    if len({call.op for call in calls.values()}) > 1:
        return None
    # Whoever waits for those that returned, be it in another call, says the same as who waits for them here.
    for_away = {rank for rank, other in waits.items() if not set(other.missing).isdisjoint(away)}
    left = for_away | set(here)
    left |= _held_up_alike(left, away, wait, waits, views)
    still_open = len(set(wait.missing) - set(away) - waits.keys())
    alone = {*here, *away} == {*range(len(views))} and len(here) == len(away) and _only_some_come(here, calls)
    if len(away) > len(left) + still_open or alone:
        return _extra(step, away, here, views)
    return _missing(step, away, calls, waits, views, majority=len(away) + still_open < len(left))


def _only_some_come(here: Collection[int], calls: Mapping[int, Step]) -> bool:
    """Whether those that are `here` have come because they, and nobody else, were asked for their rank on the way."""
    sites = {calls[rank].site for rank in here}
    return all(site is not None and any(map(is_besides, outward(site))) for site in sites)


def _held_up_alike(
    left: Collection[int], away: Collection[int], wait: Wait, waits: Mapping[int, Wait], views: Sequence[LedgerView]
) -> set[int]:
    """Who waits at the line of `wait` on groups of its own for those that are left alone, or for one another of these.

    They came to that line as well: it is not one call too many of who stands there alone in its group. Nobody, where
    one of the two may have taken a wrong group: who waits there is awaited itself, or those that are `away` came to
    that line, too.
    """
    step = wait.record.step
    alike = {
        rank: set(other.missing)
        for rank, other in waits.items()
        if (other.record.step.op, other.record.step.site) == (step.op, step.site) and step.site is not None
    }
    held, grew = set(left), True
    while grew:
        more = {rank for rank, missing in alike.items() if rank not in held and not missing.isdisjoint(held)}
        held |= more
        grew = bool(more)
    more = held - set(left)
    came = _visits(step.site, views[wait.rank])
    mistaken = any(_visits(step.site, views[rank]) >= came for rank in away) or not more.isdisjoint(wait.missing)
    return set() if mistaken else more


def _visits(site: Site | None, view: LedgerView) -> int:
    records = view.where(lambda kind, _state: kind is Kind.COLLECTIVE)
    return sum(record.step.site == site for record in records)


def _missing(
    step: Step,
    away: list[int],
    calls: Mapping[int, Step],
    waits: Mapping[int, Wait],
    views: Sequence[LedgerView],
    *,
    majority: bool,
) -> Finding:
    with_them = comes_as(away[0], calls.keys(), step.target, step.sequence, views)
    theirs = up_to(step.sequence, step.target, views[with_them])
    origins: list[Side] = []
    for ranks, found in _alike(away, theirs, step, views):
        origins.append(origin(ranks, found, views[with_them], views[ranks[0]]))
    sides = (*origins, waiting_in(calls, waits, views), *returned_after(away, step.target, views))
    culprits = tuple(away) if majority else ()
    return Finding(FindingKind.MISSING, named(step), "", sides, culprits, step.target, step.sequence)


def _extra(step: Step, away: list[int], here: list[int], views: Sequence[LedgerView]) -> Finding:
    origins = _grouped([(rank, on_top(step, views[rank], views[away[0]])) for rank in here])
    told = [origin(ranks, found, views[ranks[0]]) for ranks, found in origins]
    sides = (*told, *returned_after(away, step.target, views))
    return Finding(FindingKind.EXTRA, named(step), "", sides, tuple(here), step.target, step.sequence)


def on_top(step: Step, mine: LedgerView, theirs: LedgerView) -> Parting:
    """Which call a rank that has come to `step` made on top of those of another, which makes no more of them."""
    made = up_to(step.sequence, step.target, mine)
    found = parting(*from_one_start(calls_on(step.target, theirs), made), complete=True)
    return found or Parting(FindingKind.EXTRA, step)


def _alike(
    away: list[int], theirs: Mapping[int, Step], step: Step, views: Sequence[LedgerView]
) -> list[tuple[list[int], Parting]]:
    """Who left out the same call, and which."""
    found = []
    for rank in away:
        mine = calls_on(step.target, views[rank])
        parted = parting(*from_one_start(theirs, mine), complete=True)
        missing = parted is not None and parted.kind is FindingKind.MISSING
        found.append((rank, parted if parted is not None and missing else Parting(FindingKind.MISSING, step)))
    return _grouped(found)


def _grouped(found: Sequence[tuple[int, Parting]]) -> list[tuple[list[int], Parting]]:
    by_key: dict[object, tuple[list[int], Parting]] = {}
    for rank, parted in found:
        by_key.setdefault(key_of(parted), ([], parted))[0].append(rank)
    return list(by_key.values())


def _is_for(wait: Wait, returned: Collection[int]) -> bool:
    return wait.record.step.sequence != NO_SEQUENCE and not set(wait.missing).isdisjoint(returned)


def _since(wait: Wait) -> int:
    return wait.record.begin_ns


def _same_call(one: Step, other: Step) -> bool:
    return (one.target, one.sequence) == (other.target, other.sequence)
