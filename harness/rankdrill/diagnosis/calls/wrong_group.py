"""A rank that calls on another group than it should: others wait for it in theirs, in the same call of the program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.overlapping import takes_ranks_apart
from rankdrill.diagnosis.calls.passed import is_behind
from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.calls.source import Order, lines_alike, lines_behind, order_of
from rankdrill.diagnosis.calls.tree import holds_several
from rankdrill.diagnosis.calls.turns import ORDER, collectives_of, turn_of
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.waits import Wait, all_wait_for
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = ["against_custom", "made_elsewhere", "strayed", "wrong_group"]

_HOW_IT_SHOWS = frozenset({FindingKind.MISSING, FindingKind.EXTRA, FindingKind.CALL_ORDERING})
CUSTOM = 2  # times that a line was at one group before it is a custom


def wrong_group(waits: Mapping[int, Wait], views: Sequence[LedgerView], noticed: Finding | None) -> Finding | None:
    """What is wrong where one rank took another group than those that wait for it; None where none did.

    `noticed` is a contract that was broken on the group it took, where nobody is in the majority.
    """
    calls = {rank: wait.record.step for rank, wait in waits.items()}
    if noticed is not None:
        for rank in noticed.ranks:
            found = calls_on(noticed.group, views[rank]).get(noticed.number)
            if found is not None:
                calls[rank] = found
    awaiting = {
        rank: [other for other, wait in waits.items() if _meant(step, wait, rank, views)]
        for rank, step in calls.items()
        if step.sequence != NO_SEQUENCE
    }
    most = sorted(awaiting, key=lambda rank: len(awaiting[rank]), reverse=True)
    # Where two are waited for by as many, each took another group than the other: who was right the rest may say.
    as_many = [rank for rank in most if len(awaiting[rank]) == len(awaiting[most[0]]) > 0]
    if len(as_many) > 1:
        as_many = [rank for rank in as_many if _others_went_past(calls[rank], waits.get(rank), waits, views)]
    if len(as_many) == 1 and (noticed is not None or _is_why(as_many[0], waits, views)):
        odd = as_many[0]
        return _told(odd, calls[odd], awaiting[odd], waits)
    return against_custom(waits, views) if noticed is None else _met_against_custom(noticed, views)


def _is_why(odd: int, waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> bool:
    """Whether all could go on if only `odd` came, and it does not wait itself for those that never did anything."""
    missing = waits[odd].missing if odd in waits else ()
    idle = bool(missing) and not any(any(collectives_of(views[other])) for other in missing)
    return not idle and all_wait_for(odd, waits)


def _others_went_past(step: Step, wait: Wait | None, waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> bool:
    """Whether one that does not wait for the call itself has gone past it by the source, and never will come to it."""
    missing = wait.missing if wait is not None else ()
    return any(other in waits and is_behind(step, waits[other], views) for other in missing)


def strayed(finding: Finding, views: Sequence[LedgerView]) -> Finding:
    """`finding`, of a call that one rank made, and others on another group that it is in: it took the wrong group.

    That it made one call more, or left one out, is only how it shows.
    """
    if finding.kind not in _HOW_IT_SHOWS or finding.number == NO_SEQUENCE or finding.argument == ORDER:
        return finding
    found = {}
    for rank in finding.ranks:
        for step in _told_of(finding, views[rank]):
            others = _same_on_another_group(step, rank, views)
            if others:
                found[rank] = step, others
                break
    if not found:
        found = _made_elsewhere(finding, views)
    if len(found) != 1 or finding.culprits not in ((), tuple(found)):
        return finding
    ((rank, (step, others)),) = found.items()
    theirs = others[min(others)]
    sides = (
        side_of([rank], f"calls {step.call}", [step.site]),
        side_of(list(others), f"called {theirs.call}", [each.site for each in others.values()]),
    )
    culprits = () if _as_well_the_other(rank, step, others, views) else (rank,)
    return Finding(FindingKind.GROUP, theirs.call, "group", sides, culprits, theirs.target, theirs.sequence)


def _told_of(finding: Finding, view: LedgerView) -> Iterator[Step]:
    """The calls of one rank that the finding may be of: where it showed, and of its other lines the last before."""
    calls = calls_on(finding.group, view)
    step = calls.get(finding.number)
    if step is not None:
        yield step
    shown = {site for side in finding.sides for site in side.sites if step is None or site != step.site}
    before = {call.site: call for number, call in sorted(calls.items()) if number < finding.number}
    yield from (before[site] for site in shown if site in before)


def _as_well_the_other(rank: int, step: Step, others: Mapping[int, Step], views: Sequence[LedgerView]) -> bool:
    """Whether one rank stands against one, in two groups of the same members: then nobody else can tell."""
    ((other, theirs), *more) = others.items()
    mine = set(members_in(views[rank]).get(step.target, ()))
    return not more and mine == set(members_in(views[other]).get(theirs.target, (other,)))


def _same_on_another_group(step: Step, rank: int, views: Sequence[LedgerView]) -> dict[int, Step]:
    """Who made, in the same place of the program, the same call on one other group that `rank` is in and did not."""
    found: dict[int, Step] = {}
    mine: dict[str, dict[int, Step]] = {}
    for other, view in enumerate(views):
        members = members_in(view)
        for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
            theirs = record.step
            if theirs.target == step.target or not _in_one_place(step, theirs):
                continue
            if rank not in members.get(theirs.target, ()):
                continue
            made = mine.setdefault(theirs.target, calls_on(theirs.target, views[rank]))
            due = theirs.sequence != NO_SEQUENCE and theirs.sequence > max(made, default=-1)
            if due and other not in found and _at_one_turn(step, rank, theirs, other, views):
                found[other] = theirs
    return found if len({(each.target, each.sequence) for each in found.values()}) == 1 else {}


def _made_elsewhere(finding: Finding, views: Sequence[LedgerView]) -> dict[int, tuple[Step, dict[int, Step]]]:
    """What the one rank that left a call out made there instead, on a group where nobody met it, if not from another
    line by chance; and who made the call.

    It has gone on since, as one does that waits only later.
    """
    if finding.kind is not FindingKind.MISSING or len(finding.culprits) != 1:
        return {}
    rank = finding.culprits[0]
    made = {other: calls_on(finding.group, view).get(finding.number) for other, view in enumerate(views)}
    others = {other: step for other, step in made.items() if step is not None and other != rank}
    if not others:
        return {}
    first = min(others)
    theirs = others[first]
    found = [
        step
        for step in _with_site(views[rank])
        if step.target != finding.group
        and _in_one_place(step, theirs)
        and _at_one_turn(step, rank, theirs, first, views)
        and not any(_meets(step, view) for other, view in enumerate(views) if other != rank)
    ]
    return {rank: (found[0], others)} if len(found) == 1 else {}


def _meets(step: Step, view: LedgerView) -> bool:
    """Whether another rank, whose ledger it is, has made that call from the same line."""
    theirs = calls_on(step.target, view).get(step.sequence)
    return theirs is not None and (theirs.site is None or step.site is None or theirs.site.place == step.site.place)


def _in_one_place(step: Step, theirs: Step) -> bool:
    """Whether both are one call of the program, by the source: one line, or two of which a run makes one."""
    if theirs.op != step.op or theirs.site is None or step.site is None:
        return False
    one, other = from_one_function(theirs.site, step.site)
    if one.place == other.place:
        return not holds_several(one, step.op)
    return order_of(one, other) is Order.APART and not _has_still_to_make(theirs.site, one, other)


def _has_still_to_make(theirs: Site, one: Site, behind: Site) -> bool:
    """Whether who is at `behind` comes to the call `theirs` later, or to the helper that others make it by at `one`.

    In a branch of its own: what all come to is another call.
    """
    helpers = {site.function for site in outward(theirs) if site.function != one.function}
    lines = lines_alike(one, behind) | lines_behind(helpers, behind)
    return any(order_of(one, replace(one, line=line)) is Order.APART for line in lines)


def _at_one_turn(step: Step, rank: int, theirs: Step, other: int, views: Sequence[LedgerView]) -> bool:
    """Whether both ranks, by their ledgers, came to that place of the program as often: it may serve groups in turn.

    And whether it keeps those together that share a group, as far as is known without what `rank` did.
    """
    assert step.site is not None
    assert theirs.site is not None
    places = {site.place for site in from_one_function(theirs.site, step.site)}
    turn = turn_of(step, views[rank], places)
    at_one = turn > 0 and turn == turn_of(theirs, views[other], places)
    return at_one and not takes_ranks_apart(step, places, rank, other, views)


def _meant(step: Step, wait: Wait, rank: int, views: Sequence[LedgerView]) -> bool:
    """Whether `wait`, in another group and for `rank`, is the call of the program that `rank` made as `step`."""
    theirs = wait.record.step
    elsewhere = rank in wait.missing and theirs.target != step.target
    return elsewhere and _in_one_place(step, theirs) and _at_one_turn(step, rank, theirs, wait.rank, views)


def made_elsewhere(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """The one rank that made the call which others wait in on another group, where it is a call ahead and waits itself.

    It has made the same call of the program at the same turn, and has gone on since, as its backend let it.
    """
    found: dict[int, tuple[Step, list[int]]] = {}
    for rank, wait in waits.items():
        for other in wait.missing:
            step = _made_where_it_waits(wait, waits.get(other), views) if other < len(views) else None
            if step is not None:
                found.setdefault(other, (step, []))[1].append(rank)
    if len(found) != 1:
        return None
    ((odd, (step, awaiting)),) = found.items()
    return _told(odd, step, awaiting, waits)


def _made_where_it_waits(wait: Wait, ahead: Wait | None, views: Sequence[LedgerView]) -> Step | None:
    """The call of the program in `wait` as the rank made it that is `ahead`, if that was on the group it is now in."""
    step = wait.record.step
    if ahead is None or not ahead.missing or step.sequence == NO_SEQUENCE:
        return None
    group = ahead.record.step.target
    made = [
        each
        for each in _with_site(views[ahead.rank])
        if each.target == group != step.target
        and each.sequence < ahead.record.step.sequence
        and _in_one_place(step, each)
        and _at_one_turn(each, ahead.rank, step, wait.rank, views)
    ]
    return made[0] if len(made) == 1 else None


def against_custom(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """The one rank of which a line that has always called on one group called on another, where others wait for it."""
    found = _one_break({rank for wait in waits.values() for rank in wait.missing if rank < len(views)}, views)
    if found is None:
        return None
    rank, step, usual = found
    awaiting = [other for other, wait in waits.items() if rank in wait.missing and wait.record.step.target == usual]
    return _told(rank, step, awaiting, waits) if awaiting else None


def _met_against_custom(noticed: Finding, views: Sequence[LedgerView]) -> Finding | None:
    """The one rank that came to a call that does not fit from a line that has always called on another group."""
    found = _one_break(noticed.ranks, views, (noticed.group, noticed.number))
    if found is None:
        return None
    rank, step, usual = found
    others = [side for side in noticed.sides if rank not in side.ranks]
    mine = side_of([rank], f"calls {step.call}, from a line that has always called on {usual!r}", [step.site])
    return replace(noticed, kind=FindingKind.GROUP, argument="group", sides=(mine, *others), culprits=(rank,))


def _one_break(
    ranks: Collection[int], views: Sequence[LedgerView], call: tuple[str, int] | None = None
) -> tuple[int, Step, str] | None:
    """The one of `ranks` that broke its custom, at `call` if that is given; None if several did, or others as well.

    What others do too, at that turn of the line, the program does: it goes on to another group.
    """
    found = {rank: broken for rank in ranks if (broken := _break_of_custom(views[rank])) is not None}
    odd = [rank for rank, (step, _, _) in found.items() if call is None or (step.target, step.sequence) == call]
    if len(odd) != 1:
        return None
    rank = odd[0]
    step, usual, turn = found[rank]
    if any(_changes_too(step.site, turn, view) for other, view in enumerate(views) if other != rank):
        return None
    return rank, step, usual


def _break_of_custom(view: LedgerView) -> tuple[Step, str, int] | None:
    """The first call from a line that was at another group each time before, that group, and how often it was."""
    usual: dict[object, list[str]] = {}
    for step in _with_site(view):
        before = usual.setdefault(step.site, [])
        if len(before) >= CUSTOM and step.target not in before and len(set(before)) == 1:
            return step, before[0], len(before)
        before.append(step.target)
    return None


def _changes_too(site: Site | None, turn: int, view: LedgerView) -> bool:
    """Whether a rank, after as many calls from that line, was there at another group than it had been at."""
    groups = [step.target for step in _with_site(view) if step.site == site]
    return turn < len(groups) and groups[turn] not in groups[:turn]


def _with_site(view: LedgerView) -> Iterator[Step]:
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        step = record.step
        if step.sequence != NO_SEQUENCE and step.site is not None:
            yield step


def _told(rank: int, step: Step, awaiting: list[int], waits: Mapping[int, Wait]) -> Finding:
    theirs = waits[awaiting[0]].record.step
    verb = "waits" if len(awaiting) == 1 else "wait"
    sides = (
        side_of([rank], f"calls {named(step)}", [step.site]),
        side_of(awaiting, f"{verb} for it in {named(theirs)}", [waits[other].record.step.site for other in awaiting]),
    )
    return Finding(FindingKind.GROUP, theirs.call, "group", sides, (rank,), theirs.target, theirs.sequence)
