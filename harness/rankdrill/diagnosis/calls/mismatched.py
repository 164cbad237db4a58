"""Ranks that met in one call and do not agree there: traced back to a call that one left out, or made on top."""

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
from rankdrill.diagnosis.calls.source import Order, lines_alike, lines_behind, made_later_too, order_of
from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called
from rankdrill.diagnosis.calls.whose_calls import comes_as, from_one_start, key_of, up_to
from rankdrill.diagnosis.calls.words import at_odds, origin
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import NO_SEQUENCE, Site, Step

__all__ = ["retold", "sided_with"]

MOST_COMPARED = 8  # ranks of a side whose sequences are looked at
LONGEST_ROUND = 64  # calls by which a round is told from another


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
    found = _brings_the_next(finding, views)
    if found is None:
        found = (
            _parted(finding, views) if finding.culprits else _parted_by_custom(finding, views) or _asked(finding, views)
        )
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


def _brings_the_next(finding: Finding, views: Sequence[LedgerView]) -> tuple[tuple[int, ...], Parting] | None:
    """The culprits and the call that they left out, where what they bring is what the others have brought next, from
    that line, without waiting: of many gradients, say, each of which a hook sums up.
    """
    if finding.kind not in (FindingKind.SIZE, FindingKind.DATATYPE) or not finding.culprits:
        return None
    theirs = [calls_on(finding.group, views[rank]) for rank in finding.sides[-1].ranks[:MOST_COMPARED]]
    furthest = max(theirs, key=lambda calls: max(calls, default=NO_SEQUENCE))
    due, following = furthest.get(finding.number), _comes_next(finding.number, furthest)
    if due is None or following is None:
        return None
    brought = [calls_on(finding.group, views[rank]).get(finding.number) for rank in finding.culprits]
    if any(mine is None or _alike(mine) != _alike(following) for mine in brought):
        return None
    return finding.culprits, Parting(FindingKind.MISSING, due)


def _comes_next(number: int, calls: Mapping[int, Step]) -> Step | None:
    """What is called after call `number`: the run may have ended before it was, but not so in the round before."""
    if number + 1 in calls or number not in calls:
        return calls.get(number + 1)
    alike = {at: led for at in range(min(calls), number) if (led := _led_there_alike(at, number, calls))}
    before = max(alike, key=lambda at: (alike[at], at), default=None)
    return calls.get(before + 1) if before is not None else None


def _led_there_alike(one: int, other: int, calls: Mapping[int, Step]) -> int:
    """How many calls up to those two are the same, at most a round's."""
    before = range(LONGEST_ROUND)
    apart = (k for k in before if one - k not in calls or _alike(calls[one - k]) != _alike(calls.get(other - k)))
    return next(apart, LONGEST_ROUND)


def _alike(call: Step | None) -> tuple[str, str, int, Site | None] | None:
    """By which it is the same call, of another round or rank; sizes that may differ are in the fingerprint alone."""
    return (call.op, call.fingerprint, call.digest, call.site) if call is not None else None


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
    with_them = comes_as(finding.culprits[0], others, finding.group, finding.number, views)
    theirs = up_to(finding.number, finding.group, views[with_them])
    found = [
        parting(*from_one_start(theirs, up_to(finding.number, finding.group, views[rank])), complete=False)
        for rank in finding.culprits[:MOST_COMPARED]
    ]
    first = found[0]
    if first is None or any(one is None or key_of(one) != key_of(first) for one in found):
        return None
    return finding.culprits, first


def _parted_before(finding: Finding, views: Sequence[LedgerView]) -> Finding | None:
    """What is said of two sides at odds whose calls part before it showed: by a call that one of them lacks, or made on
    top.
    """
    if finding.culprits or len(finding.sides) != 2:
        return None
    one, other = (up_to(finding.number, finding.group, views[side.ranks[0]]) for side in finding.sides)
    if not one or not other:
        return None
    parted = parted_before(*from_one_start(one, other))
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
    one, other = (up_to(finding.number, finding.group, views[side.ranks[0]]) for side in finding.sides)
    return left_out_by_one_side([side.ranks for side in finding.sides], *from_one_start(one, other))


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
