"""Ranks that wait for one another in two groups: who took another group than most, or came to a call too early."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

from rankdrill.diagnosis.calls.common_caller import from_one_function, in_any_loop, in_turn_by_one_line
from rankdrill.diagnosis.calls.loops import group_goes_by_the_element
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.passed import is_behind, lie_behind
from rankdrill.diagnosis.calls.sequences import Parting, left_out_by_custom, parting
from rankdrill.diagnosis.calls.source import Order, lines_alike, made_later_too, order_of
from rankdrill.diagnosis.calls.unmatched import on_top
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait, name_ranks
from rankdrill.ledger import LedgerView, Record
from rankdrill.site import outward
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = ["crossed_groups"]


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective that ranks wait in: who has made it, who of those is in it yet, and who has not come."""

    step: Step
    made: Mapping[int, Record]
    waiting: frozenset[int]
    missing: frozenset[int]

    @property
    def members(self) -> frozenset[int]:
        return self.missing | self.made.keys()


@dataclass(frozen=True, slots=True)
class _Side:
    """The ranks that came to `meeting` first."""

    ranks: list[int]
    meeting: _Meeting

    @property
    def rank(self) -> int:
        """The one that speaks for all."""
        return min(self.ranks, key=lambda rank: (rank not in self.meeting.waiting, rank))

    @property
    def step(self) -> Step:
        return self.meeting.made[self.rank].step


def crossed_groups(
    waits: Mapping[int, Wait], views: Sequence[LedgerView], returned: Collection[int] = ()
) -> Finding | None:
    """What is wrong where ranks wait for each other in two groups; None where they do not.

    Only where nobody else is waited for but by who is at fault: a rank that left, or died, explains more. Only members
    of both groups have a say in which of them was the right one: whoever had no choice is no witness.
    """
    for one, other in combinations(_meetings(waits, views), 2):
        if one.step.target == other.step.target or not _turned_round(one, other):
            continue
        few, most = sorted(_votes(one, other), key=lambda side: len(side.ranks))
        if not few.ranks or not few.meeting.missing <= waits.keys() | set(returned):
            continue  # who is at fault may wait for anybody: what it has come to is not what it should have
        stay = most.meeting.missing <= waits.keys()
        if stay and len(most.ranks) > len(few.ranks):
            return _told(few, most, views, majority=True)
        if len(most.ranks) == len(few.ranks):
            found = _by_source(few, most, waits, returned, views)
            if found is not None:
                return found
            if stay and few.meeting.missing <= waits.keys():
                both = (few, most), (most, few)
                early = [pair for pair in both if _came_before_its_turn(*pair, views)]
                early = early or [pair for pair in both if _is_alone_in_its_branch(*pair)]
                return _told(*(early[0] if len(early) == 1 else (few, most)), views, majority=len(early) == 1)
    return None


def _turned_round(one: _Meeting, other: _Meeting) -> bool:
    """Whether some came to `one` first, others to `other`; those that a backend let go on have come there, too."""
    here, there = one.missing & other.made.keys(), other.missing & one.made.keys()
    return bool(here and there and (here & other.waiting or there & one.waiting))


def _meetings(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> list[_Meeting]:
    """The collectives that ranks wait in, in the order in which that began."""
    found: dict[tuple[str, int], list[Wait]] = {}
    for wait in sorted(waits.values(), key=lambda wait: (wait.record.begin_ns, wait.rank)):
        step = wait.record.step
        if step.sequence != NO_SEQUENCE:
            found.setdefault((step.target, step.sequence), []).append(wait)
    return [_meeting(waiting, views) for waiting in found.values()]


def _meeting(waiting: Sequence[Wait], views: Sequence[LedgerView]) -> _Meeting:
    step = waiting[0].record.step
    made = {rank: record for rank, view in enumerate(views) if (record := _made(step, view)) is not None}
    made |= {wait.rank: wait.record for wait in waiting}
    missing = frozenset(rank for wait in waiting for rank in wait.missing)
    return _Meeting(step, made, frozenset(wait.rank for wait in waiting), missing)


def _made(step: Step, view: LedgerView) -> Record | None:
    of_group = view.where(lambda kind, state: kind is Kind.COLLECTIVE)
    return next((record for record in of_group if _same(record.step, step)), None)


def _same(one: Step, other: Step) -> bool:
    return (one.target, one.sequence) == (other.target, other.sequence)


def _votes(one: _Meeting, other: _Meeting) -> tuple[_Side, _Side]:
    """Which members of both came to `one` first, which to `other`."""
    sides = _Side([], one), _Side([], other)
    for rank in sorted(one.members & other.members):
        here, there = one.made.get(rank), other.made.get(rank)
        if here is None and there is None:
            continue
        first = there is None or (here is not None and here.index < there.index)
        sides[0 if first else 1].ranks.append(rank)
    return sides


def _came_before_its_turn(side: _Side, other: _Side, views: Sequence[LedgerView]) -> bool:
    """Whether the call of `other`, in which more ranks wait, came right before such a call each time but now."""
    *before, now = _calls(side, views)
    theirs = _place(other.step)
    usual = {_place(one) for one, two in pairwise(before) if (two.op, two.target) == (now.op, now.target)}
    if len(other.meeting.waiting) <= len(side.meeting.waiting) or theirs is None or not before:
        return False
    return usual == {theirs} and _place(before[-1]) != theirs


def _is_alone_in_its_branch(side: _Side, other: _Side) -> bool:
    """Whether who is in the call of `other`, and had no choice, has come there by the very lines of its rank, and the
    one rank of `side` to its own by another branch: so many go that way.
    """
    mine, theirs = side.step.site, other.step.site
    if mine is None or theirs is None or len(side.ranks) > 1:
        return False
    beside = {other.meeting.made[rank].step.site for rank in other.meeting.waiting.difference(other.ranks, side.ranks)}
    one, apart = from_one_function(theirs, mine)
    return bool(beside) and all(_way(site) == _way(theirs) for site in beside) and order_of(one, apart) is Order.APART


def _way(site: Site | None) -> list[tuple[str, int]]:
    """Its line, and those of its callers."""
    return [each.place for each in outward(site)]


def _place(step: Step) -> tuple[str, int] | None:
    return step.site.place if step.site is not None else None


# --------------------------------------------------------------------------------------------- what it is called


def _by_source(
    one: _Side, other: _Side, waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is told where as many came to the one first as to the other; None if the source does not say.

    Members that cannot have come to the other have a say in whether the first in the source was to be made: they have
    made it, or gone past it; whoever is in it from a line behind both has gone past it, too.
    """
    for early, late in ((one, other), (other, one)):
        if late.rank not in waits or not is_behind(early.step, waits[late.rank], views):
            continue
        members = early.meeting.missing
        past = [
            rank
            for rank in members
            if rank in returned or (rank in waits and is_behind(early.step, waits[rank], views))
        ]
        here = waits[late.rank].record.step.site
        sites = {rank: record.step.site for rank, record in early.meeting.made.items()}
        further_on = [rank for rank, site in sites.items() if lie_behind(site, early.step.site, here)]
        made = sorted(sites.keys() - set(further_on))
        past += further_on
        call = on_top(early.step, views[early.rank], views[late.rank]).call
        if len(past) < len(made) and set(late.ranks) <= set(past):
            return _finding(kind := FindingKind.MISSING, late, early, Parting(kind, call), tuple(sorted(past)))
        if len(past) > len(made):
            return _finding(kind := FindingKind.EXTRA, early, late, Parting(kind, call), tuple(made))
    return None


def _told(few: _Side, most: _Side, views: Sequence[LedgerView], *, majority: bool) -> Finding:
    odd, step = few.step, most.step
    theirs, mine = _on_both(most, few, views), _on_both(few, most, views)
    if not majority and _sites_known(odd, step):
        # What was done in the rounds before may tell one from the other.
        told = [
            (side, found)
            for side, found in ((few, left_out_by_custom(theirs, mine)), (most, left_out_by_custom(mine, theirs)))
            if found is not None
        ]
        if len(told) == 1:
            ((side, found),) = told
            return _finding(FindingKind.MISSING, side, most if side is few else few, found, tuple(side.ranks))
    if majority and _in_other_threads(few, most, views):
        extra = _lies_behind(step, odd)  # whose other threads will not come to that call any more
        apart = Parting(FindingKind.EXTRA, odd) if extra else Parting(FindingKind.MISSING, step)
        return _finding(apart.kind, few, most, apart, tuple(sorted(few.ranks)))
    parted = parting(theirs, mine, complete=False) if theirs and mine else None
    if parted is None and not majority and theirs and mine:
        parted = parting(mine, theirs, complete=False)  # of two neither is the one that the other is held against
    alike = few.meeting.members == most.meeting.members
    kind = _kind(odd, step, views[few.rank], parted, majority=majority, of_the_same=alike)
    if not majority and kind is FindingKind.EXTRA:
        kind = FindingKind.MISSING  # as the other sees it
    return _finding(kind, few, most, parted, tuple(sorted(few.ranks)) if majority else ())


def _in_other_threads(few: _Side, most: _Side, views: Sequence[LedgerView]) -> bool:
    """Whether all ranks call on the two groups from threads of their own: what one waits in is not made instead."""
    for mine, theirs in ((few, most), (most, few)):
        thread = mine.meeting.made[mine.rank].thread
        calls = [
            record
            for record in views[mine.rank].where(lambda kind, state: kind is Kind.COLLECTIVE)
            if record.step.target == theirs.step.target
        ]
        if not calls or any(record.thread == thread for record in calls):
            return False
    return True


def _lies_behind(step: Step, other: Step) -> bool:
    """Whether by the source who has come to `step` has gone past `other`, or past what handed that over to a thread."""
    if step.site is None or other.site is None:
        return False
    one, behind = from_one_function(other.site, step.site)
    return order_of(one, behind) is Order.AFTER


def _kind(
    odd: Step, step: Step, view: LedgerView, parted: Parting | None, *, majority: bool, of_the_same: bool
) -> FindingKind:
    """What it is called that one waits in `odd` where most wait in `step`, on a group maybe of the same ranks."""
    alike = odd.op == step.op
    if not _sites_known(odd, step):
        return FindingKind.GROUP
    assert odd.site is not None
    assert step.site is not None
    one, other = from_one_function(odd.site, step.site)
    in_turn = in_turn_by_one_line(odd.site, step.site)  # by functions each of which has a group of its own
    if alike and (in_turn or _from_both_groups(odd, step, view) or (not majority and _come_to_both(one, other))):
        return FindingKind.DEADLOCK
    if one.place == other.place:
        in_order = of_the_same and group_goes_by_the_element(one)
        return FindingKind.GROUP if alike and not in_order else FindingKind.CALL_ORDERING
    later = made_later_too(one, other), made_later_too(other, one)
    if alike and all(later):
        return FindingKind.DEADLOCK  # each would come to the other's call
    swapped = any(later)
    apart = order_of(other, one) is Order.APART  # what only one of them comes to later may be the next call
    if apart and alike and lines_alike(one, other) and lines_alike(other, one):
        return FindingKind.CALL_ORDERING  # in branches of their own they make the same two calls, turned round
    if apart or parted is None:
        return FindingKind.GROUP if alike and (apart or not swapped) else FindingKind.CALL_ORDERING
    return FindingKind.CALL_ORDERING if swapped else parted.kind


def _come_to_both(one: Site, other: Site) -> bool:
    """Whether they are one line, and a loop brings ranks there again: for the other's group, it may be."""
    again = in_any_loop(one)
    return one.place == other.place and again


def _sites_known(one: Step, other: Step) -> bool:
    return one.site is not None and other.site is not None


def _from_both_groups(odd: Step, step: Step, view: LedgerView) -> bool:
    """Whether the line at which it waits has served both groups before: in turn, which is now another one."""
    groups = {
        record.step.target
        for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE)
        if record.step.site == odd.site and not _same(record.step, odd)
    }
    return odd.site is not None and {odd.target, step.target} <= groups


def _on_both(side: _Side, other: _Side, views: Sequence[LedgerView]) -> list[Step]:
    """What a rank of `side` did, up to where it waits, on the groups that one of `other` calls on too."""
    mine, theirs = _calls(side, views), _calls(other, views)
    shared = {step.target for step in mine} & {step.target for step in theirs}
    shared |= {side.step.target, other.step.target}
    first = {target: max(_first(target, mine), _first(target, theirs)) for target in shared}
    return [step for step in mine if step.target in shared and step.sequence >= first[step.target]]


def _first(target: str, steps: Sequence[Step]) -> int:
    """The first call on a group that the ledger still tells of."""
    return min((step.sequence for step in steps if step.target == target), default=0)


def _calls(side: _Side, views: Sequence[LedgerView]) -> list[Step]:
    last = side.meeting.made[side.rank]
    return [
        record.step
        for record in views[side.rank].where(lambda kind, state: kind is Kind.COLLECTIVE)
        if record.step.sequence != NO_SEQUENCE and record.index <= last.index
    ]


# --------------------------------------------------------------------------------------------- in words


def _finding(
    kind: FindingKind, few: _Side, most: _Side, parted: Parting | None, culprits: tuple[int, ...] = ()
) -> Finding:
    step = most.step
    told = sorted((_side(few), _side(most)), key=lambda side: side.ranks)
    if kind in (FindingKind.DEADLOCK, FindingKind.CALL_ORDERING):
        told = sorted((_with_ahead(few, most), _with_ahead(most, few)), key=lambda side: side.ranks)
    if culprits:
        told.sort(key=lambda side: side.ranks != culprits)
    if kind is FindingKind.DEADLOCK:
        one, other = told
        first, second = name_ranks(one.ranks), name_ranks(other.ranks)
        circle = f"{first} {_verb(one.ranks)} for {second}, which {_verb(other.ranks)} for {first}"
        return Finding(kind, circle, "order", tuple(told), culprits)
    finding = Finding(kind, step.call, "group", tuple(told), culprits)
    if not culprits or parted is None or kind not in (FindingKind.MISSING, FindingKind.EXTRA):
        return finding
    return replace(finding, sides=(_origin(culprits, kind, parted.call), *told))


def _origin(ranks: Sequence[int], kind: FindingKind, call: Step) -> Side:
    one = len(ranks) == 1
    if kind is FindingKind.MISSING:
        did = f"{'leaves' if one else 'leave'} out {named(call)}"
    else:
        did = f"{'makes' if one else 'make'} one call more, {named(call)}"
    return side_of(ranks, did, [call.site] * len(ranks))


def _side(side: _Side) -> Side:
    # A backend may have let some of them go on.
    did = f"{_verb(side.ranks)} in" if side.meeting.waiting.issuperset(side.ranks) else "came first to"
    return side_of(side.ranks, f"{did} {named(side.step)}", [side.meeting.made[rank].step.site for rank in side.ranks])


def _with_ahead(side: _Side, other: _Side) -> Side:
    return replace(_side(side), ahead=_ahead(side.step.site, other.step.site))


def _ahead(mine: Site | None, theirs: Site | None) -> Site | None:
    """Where further down the call at `theirs` is written word for word: its own second one, of who waits at `mine`."""
    if mine is None or theirs is None:
        return None
    here, there = from_one_function(mine, theirs)
    lines = lines_alike(there, here)
    return replace(here, line=lines.pop()) if len(lines) == 1 else None


def _verb(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"
