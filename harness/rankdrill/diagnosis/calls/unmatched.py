"""Calls that one rank left out, or made on top of what the others made: told by the ranks' sequences of calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from rankdrill.diagnosis.calls.common_caller import from_one_function, some_come_besides
from rankdrill.diagnosis.calls.conditions import comes_with_each_round
from rankdrill.diagnosis.calls.contracts import MEMBERS
from rankdrill.diagnosis.calls.groups_left_out import went_past_group
from rankdrill.diagnosis.calls.halves import in_a_thread
from rankdrill.diagnosis.calls.made_once import is_asked_for_later
from rankdrill.diagnosis.calls.met_by_mistake import (
    OF_ONE_CALL,
    either_turned_round,
    go_by_the_element,
    is_of_another_round,
    is_of_two_threads,
    one_lies_behind,
    turned_round,
)
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.rounds import out_of_turn_with_a_line
from rankdrill.diagnosis.calls.sequences import Parting, calls_on, left_out_by_one_side, parted_before, parting
from rankdrill.diagnosis.calls.source import (
    Order,
    is_besides,
    lines_alike,
    lines_behind,
    made_later_too,
    order_of,
)
from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called
from rankdrill.diagnosis.calls.words import at_odds, origin, returned_after, waiting_in
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = ["left_behind", "on_top", "retold", "sided_with"]

MOST_COMPARED = 8  # culprits whose sequences are looked at


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


def sided_with(finding: Finding, waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding:
    """`finding`, decided by members that have not come to the call where nobody there is in the majority.

    Who of them waits for one side elsewhere was let down by it: it came here too early, or to what was not to be.
    Whoever is no member may be way ahead, and wait for one that is held up here.
    """
    if finding.culprits or finding.kind not in OF_ONE_CALL or len(finding.sides) != 2:
        return finding
    one, other = finding.sides
    members = {rank for view in views for rank in members_in(view).get(finding.group, ())}
    elsewhere = (rank for rank in waits.keys() & members if not _is_in(finding, waits[rank].record.step))
    waits = {rank: waits[rank] for rank in elsewhere}
    for_one, for_other = _let_down_by(other, one, waits), _let_down_by(one, other, waits)
    if len(for_one) == len(for_other) or {*for_one, *for_other} == {*one.ranks, *other.ranks}:
        return finding
    few, most = (one, other) if len(for_one) < len(for_other) else (other, one)
    return replace(finding, sides=(few, most), culprits=few.ranks)


def _is_in(finding: Finding, step: Step) -> bool:
    return (step.target, step.sequence) == (finding.group, finding.number)


def _let_down_by(few: Side, most: Side, waits: Mapping[int, Wait]) -> set[int]:
    """Who is for `most`: its own, and those that wait for `few` elsewhere, and not for its own too."""
    there = {*few.ranks, *most.ranks}
    awaited = {rank: set(wait.missing) & there for rank, wait in waits.items() if rank not in there}
    return {*most.ranks, *(rank for rank, for_whom in awaited.items() if for_whom and for_whom <= set(few.ranks))}


def retold(finding: Finding, views: Sequence[LedgerView]) -> Finding:
    """`finding`, a contract broken at some call, traced back to where the culprits' calls part from the others'.

    Where nobody is in the majority, what the ranks did in the rounds before may still tell who left a call out.
    """
    if finding.number == NO_SEQUENCE:
        return finding
    if finding.kind is FindingKind.GROUP and finding.argument == MEMBERS:
        return went_past_group(finding)
    if finding.kind in OF_ONE_CALL and any(is_of_two_threads(*pair) for pair in permutations(finding.sides, 2)):
        return replace(finding, kind=FindingKind.CALL_ORDERING, culprits=())  # on each rank it is chance
    found = _parted(finding, views) if finding.culprits else _parted_by_custom(finding, views) or _asked(finding, views)
    found = found or _in_a_branch_without(finding, views) or _out_of_turn(finding, views)
    if found is None or _comes_by_without_fail(finding, found[1]):
        if turned_round(finding) or either_turned_round(finding) or is_of_another_round(finding, views):
            return replace(finding, kind=FindingKind.CALL_ORDERING)
        early = _parted_before(finding, views)
        return early or (replace(finding, kind=FindingKind.MISSING) if one_lies_behind(finding) else finding)
    culprits, parted = found
    if parted.call.sequence == finding.number and go_by_the_element(finding):
        return replace(finding, kind=FindingKind.CALL_ORDERING, culprits=culprits)
    extra, out_of_turn = parted.kind is FindingKind.EXTRA, _made_after_all(parted, finding, culprits)
    kind = FindingKind.CALL_ORDERING if out_of_turn else parted.kind
    there = extra and parted.call.sequence == finding.number  # which has been told then
    rest = [side for side in finding.sides if not there or not set(side.ranks) <= set(culprits)]
    rest.sort(key=lambda side: not set(side.ranks) <= set(culprits))
    if kind is FindingKind.MISSING and parted.call.site is not None and (line := in_a_thread(parted.call.site)):
        one, on = ("makes", "goes") if len(culprits) == 1 else ("make", "go")
        made = side_of(
            culprits, f"{one} {named(parted.call)} in another thread, and {on} on meanwhile", [line] * len(culprits)
        )
        return replace(finding, kind=FindingKind.CALL_ORDERING, sides=(made, *finding.sides), culprits=culprits)
    made_it = culprits if extra else _others(finding, culprits)
    sides = (origin(culprits, parted, views[made_it[0]], views[culprits[0]], out_of_turn=out_of_turn), *rest)
    return replace(finding, kind=kind, step=named(parted.call), argument="", sides=sides, culprits=culprits)


def _comes_by_without_fail(finding: Finding, parted: Parting) -> bool:
    """Whether a call left out, as its root would say, is of a line that each round of its loop comes to."""
    if finding.kind is not FindingKind.ROOT or parted.kind is not FindingKind.MISSING:
        return False
    (site, *more) = {each for side in finding.sides for each in side.sites}
    if more or site is None or parted.call.site != site or parted.call.sequence != finding.number:
        return False
    return comes_with_each_round(site)


def _in_a_branch_without(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    """The culprits and the call that they left out, where they came to a branch of their own without it, whose call
    the others come to later.
    """
    odd, most = finding.sides[0].sites[0], finding.sides[-1].sites[0]
    if not finding.culprits or odd is None or most is None or order_of(odd, most) is not Order.APART:
        return None
    due = calls_on(finding.group, views[finding.sides[-1].ranks[0]]).get(finding.number)
    if due is None or not lines_alike(odd, most) or lines_alike(most, odd) or _in_its_branch(odd, most):
        return None
    return finding.culprits, Parting(FindingKind.MISSING, due)


def _in_its_branch(odd: Site, most: Site) -> bool:
    """Whether what is called at `most` is called, by that name, behind `odd` in that one's own branch."""
    function = function_around(most)
    names = {name_called(call) for call in calls_at(function, most.line)} if function is not None else set[str]()
    lines = (replace(odd, line=line) for line in lines_behind(names, odd))
    return any(order_of(most, line) is Order.APART for line in lines)


def _out_of_turn(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    return out_of_turn_with_a_line(finding, views) if finding.kind in OF_ONE_CALL else None


def _made_after_all(parted: Parting, finding: Finding, culprits: Collection[int]) -> bool:
    """Whether those who seem to lack that call come to it behind the line where it showed, as the source says."""
    extra = parted.kind is FindingKind.EXTRA
    lacking = (side for side in finding.sides if (set(side.ranks) <= set(culprits)) is not extra)
    shows, site = next((side.sites[0] for side in lacking), None), parted.call.site
    if site is None or shows is None:
        return False
    return made_later_too(*from_one_function(site, shows)) or (extra and is_asked_for_later(site, shows))


def _others(finding: Finding, culprits: Collection[int]) -> list[int]:
    return sorted({rank for side in finding.sides for rank in side.ranks} - set(culprits))


def _parted(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    """The culprits, if all of them part from the others in the same way, and where."""
    others = set(finding.sides[-1].ranks) - set(finding.culprits)
    if not others:
        return None
    with_them = _comes_as(finding.culprits[0], others, finding.group, finding.number, views)
    theirs = _up_to(finding.number, finding.group, views[with_them])
    found = [
        parting(*_from_one_start(theirs, _up_to(finding.number, finding.group, views[rank])), complete=False)
        for rank in finding.culprits[:MOST_COMPARED]
    ]
    first = found[0]
    if first is None or any(one is None or _key(one) != _key(first) for one in found):
        return None
    return finding.culprits, first


def _parted_before(finding: Finding, views: Sequence[LedgerView]) -> Finding | None:
    """What is said of two sides at odds whose calls part before it showed: by a call that one of them lacks, or made on
    top.
    """
    if finding.culprits or len(finding.sides) != 2:
        return None
    one, other = (_up_to(finding.number, finding.group, views[side.ranks[0]]) for side in finding.sides)
    if not one or not other:
        return None
    parted = parted_before(*_from_one_start(one, other))
    if parted is None:
        return None
    without, made_it = finding.sides if parted.kind is FindingKind.EXTRA else reversed(finding.sides)
    told = replace(finding, step=named(parted.call), argument="")
    made = side_of(made_it.ranks, "", [parted.call.site] * len(made_it.ranks))
    if _are_all(finding.sides, views) and _is_asked_into(made, without):
        first = origin(made_it.ranks, Parting(FindingKind.EXTRA, parted.call), views[made_it.ranks[0]])
        return replace(told, kind=FindingKind.EXTRA, culprits=made_it.ranks, sides=(first, made_it, without))
    sides = (at_odds(made_it.ranks, without.ranks, parted.call), *finding.sides)
    return replace(told, kind=FindingKind.MISSING, sides=sides)


def _are_all(sides: Sequence[Side], views: Sequence[LedgerView]) -> bool:
    return {rank for side in sides for rank in side.ranks} == {*range(len(views))}


def _parted_by_custom(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    """The side that left out what it used to call there, if that can be said of one of two sides."""
    if len(finding.sides) != 2:
        return None
    one, other = (_up_to(finding.number, finding.group, views[side.ranks[0]]) for side in finding.sides)
    return left_out_by_one_side([side.ranks for side in finding.sides], *_from_one_start(one, other))


def _asked(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    """Of two sides of all ranks the one that makes its call because it has asked which rank it is, where the others
    have nothing to do in its place, and it comes to theirs as well: it makes one call more.
    """
    if len(finding.sides) != 2 or finding.kind not in OF_ONE_CALL:
        return None
    pairs = [(mine, theirs) for mine, theirs in permutations(finding.sides) if _is_asked_into(mine, theirs)]
    if len(pairs) != 1 or not _are_all(finding.sides, views):
        return None
    ((side, _),) = pairs
    call = calls_on(finding.group, views[side.ranks[0]]).get(finding.number)
    return (side.ranks, Parting(FindingKind.EXTRA, call)) if call is not None else None


def _is_asked_into(mine: Side, theirs: Side) -> bool:
    one, other = mine.sites[0], theirs.sites[0]
    if one is None or other is None or len(set(mine.sites)) > 1:
        return False
    at_one, at_other = from_one_function(one, other)
    return order_of(at_one, at_other) in (Order.AFTER, Order.BEFORE) and some_come_besides(at_one, one)


def _missing(
    step: Step,
    away: list[int],
    calls: Mapping[int, Step],
    waits: Mapping[int, Wait],
    views: Sequence[LedgerView],
    *,
    majority: bool,
) -> Finding:
    with_them = _comes_as(away[0], calls.keys(), step.target, step.sequence, views)
    theirs = _up_to(step.sequence, step.target, views[with_them])
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
    made = _up_to(step.sequence, step.target, mine)
    found = parting(*_from_one_start(calls_on(step.target, theirs), made), complete=True)
    return found or Parting(FindingKind.EXTRA, step)


def _alike(
    away: list[int], theirs: Mapping[int, Step], step: Step, views: Sequence[LedgerView]
) -> list[tuple[list[int], Parting]]:
    """Who left out the same call, and which."""
    found = []
    for rank in away:
        mine = calls_on(step.target, views[rank])
        parted = parting(*_from_one_start(theirs, mine), complete=True)
        missing = parted is not None and parted.kind is FindingKind.MISSING
        found.append((rank, parted if parted is not None and missing else Parting(FindingKind.MISSING, step)))
    return _grouped(found)


def _grouped(found: Sequence[tuple[int, Parting]]) -> list[tuple[list[int], Parting]]:
    by_key: dict[object, tuple[list[int], Parting]] = {}
    for rank, parted in found:
        by_key.setdefault(_key(parted), ([], parted))[0].append(rank)
    return list(by_key.values())


def _key(found: Parting) -> object:
    return found.kind, found.call.sequence, found.call.op, found.call.site


# --------------------------------------------------------------------------------------------- whose calls


def _comes_as(rank: int, others: Collection[int], group: str, number: int, views: Sequence[LedgerView]) -> int:
    """Which of the `others` made their call of that `number` where `rank` has called, too, if any did: its own branch
    says what it left out.
    """
    own = {step.site.place for step in calls_on(group, views[rank]).values() if step.site is not None}
    made = {other: calls_on(group, views[other]).get(number) for other in sorted(others)}
    there = (one for one, step in made.items() if step is not None and step.site is not None and step.site.place in own)
    return next(there, min(others))


def _up_to(number: int, group: str, view: LedgerView) -> dict[int, Step]:
    return {sequence: step for sequence, step in calls_on(group, view).items() if sequence <= number}


def _from_one_start(theirs: Mapping[int, Step], mine: Mapping[int, Step]) -> tuple[list[Step], list[Step]]:
    """Both in order, from the first call that both ledgers still tell of."""
    first = max(min(calls, default=0) for calls in (theirs, mine))
    one, other = ([calls[number] for number in sorted(calls) if number >= first] for calls in (theirs, mine))
    return one, other


def _is_for(wait: Wait, returned: Collection[int]) -> bool:
    return wait.record.step.sequence != NO_SEQUENCE and not set(wait.missing).isdisjoint(returned)


def _since(wait: Wait) -> int:
    return wait.record.begin_ns


def _same_call(one: Step, other: Step) -> bool:
    return (one.target, one.sequence) == (other.target, other.sequence)
