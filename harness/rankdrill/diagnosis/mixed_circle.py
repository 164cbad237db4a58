"""Ranks that wait for each other in a circle, some in a collective and others for messages: what was to come first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.common_caller import from_one_function, in_any_loop, in_turn_by_one_line
from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.passed import gone_past
from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.calls.source import (
    Order,
    comes_later,
    functions_calling,
    lines_alike,
    lines_behind,
    made_later_too,
    nearest,
    order_of,
)
from rankdrill.diagnosis.calls.tree import calls_at, function_around, lines_calling, name_called
from rankdrill.diagnosis.came_first import by_what_came_first
from rankdrill.diagnosis.deadlock import deadlock, in_circle, in_every_circle
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.messages.account import Account
from rankdrill.diagnosis.messages.tags import PATTERN
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.diagnosis.short_of_others import has_left_its_loop, short_of_what_others_sent
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import BATCH, SEND, Site, Step

__all__ = ["mixed_circle"]


def mixed_circle(
    circle: Sequence[Wait], lost: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """What is wrong where of a `circle` some wait in a collective, and others for messages of these.

    None where a message was left out: where the ranks in the collective would not come to it either. It is a circle by
    order alone if they would, behind the collective, and another call than theirs if they wait in another branch. Who
    waits for the message may have gone past the collective, too. `lost` are all that wait for ever.
    """
    inside = [wait for wait in circle if wait.record.step.message is None]
    outside = [wait for wait in circle if wait.record.step.message is not None]
    if not inside or not outside:
        return None
    meeting, message = inside[0].record.step, outside[0].record.step
    if meeting.site is None or message.site is None:
        return None
    traffic = Traffic(dict(enumerate(views)))
    there = [wait.record.step.site for wait in lost.values() if _is_in(meeting, wait)]
    if (turned := by_what_came_first(circle, lost, views, traffic)) is not None:
        return turned
    for wait in inside:
        for other in outside:
            found = gone_past(wait, other, lost, returned, views) if other.rank in wait.missing else None
            if found is not None:
                return found
    listed = any(site is not None and in_turn_by_one_line(site, message.site) for site in there)
    if len(outside) == 1 and listed:
        if alone := _turned_round_alone(inside, meeting, lost):
            return deadlock(circle, alone)
        short = short_of_what_others_sent(outside[0], inside, meeting, views, traffic, listed=True)
        return deadlock(circle, short) if short else _another_call(outside[0], meeting, views)
    if by_own_line := _early_by_its_own_line(outside, inside, lost, traffic):
        return deadlock(circle, by_own_line)
    awaited = {"recv", "irecv"} if message.op == SEND else {"send", "isend"}
    if later := _exchanges_it_later(outside, inside, traffic):
        return deadlock(circle, later)
    if _left_out(outside[0], inside, awaited):
        return None
    if _does_both(message.site, awaited) and (before_its_turn := _came_before_its_turn(outside, meeting, lost)):
        return deadlock(circle, before_its_turn)
    if _comes_later(awaited | {BATCH}, meeting.site):
        early = in_every_circle(circle, lost) or _too_early(outside, meeting, lost)
        early = early or _came_before_its_turn(outside, meeting, lost)
        return deadlock(circle, early or _came_without_sending(inside, outside, lost, traffic))
    if behind := _came_without(outside, inside, lost, traffic):
        return deadlock(circle, behind)
    # Who has come there by the line of the message says that it comes before the collective, for all.
    if (late := _alone_without(outside, inside, lost, traffic)) is not None:
        return deadlock(circle, (late.rank,)) if _comes_by_a_helper(awaited, late.record.step.site) else None
    if len(outside) == 1 and all(_is_apart(site, message.site) for site in there):
        short = short_of_what_others_sent(outside[0], inside, meeting, views, traffic)
        end = MessageEnd.of(outside[0].rank, outside[0].record)
        if short and end is not None and has_left_its_loop(lost[short[0]], traffic):
            return Account(lost, dict(enumerate(views)), traffic).missing(end, short)
        return deadlock(circle, short) if short else _another_call(outside[0], meeting, views)
    if len(outside) == 1 and (first := _made_by_all_others(outside[0].rank, meeting, views)) is not None:
        return _another_call(outside[0], first, views)
    return None


def _comes_later(names: Collection[str], site: Site) -> bool:
    """Whether one of `names`, or what calls one, is called behind that line, or behind one that led to it."""
    return any(comes_later({*names, *functions_calling(names, each.file)}, each) for each in outward(site))


def _turned_round_alone(inside: Sequence[Wait], meeting: Step, lost: Mapping[int, Wait]) -> tuple[int, ...]:
    """The one that is in the collective, where all others, two at least, are in what one line of it calls, too; nobody
    if there is no such.
    """
    here = meeting.site
    others = [wait.record.step.site for rank, wait in lost.items() if rank != inside[0].rank]
    listed = all(site is not None and here is not None and in_turn_by_one_line(here, site) for site in others)
    return (inside[0].rank,) if len(others) >= PATTERN and listed else ()


def _came_without(
    outside: Sequence[Wait], inside: Sequence[Wait], lost: Mapping[int, Wait], traffic: Traffic
) -> tuple[int, ...]:
    """The one in the collective whose message the one outside waits for, where all others that are in it with that one
    have exchanged theirs before, by a call that it makes behind it, word for word; nobody, if there is no such.
    """
    (early, *more) = outside
    end = MessageEnd.of(early.rank, early.record)
    met = next((wait for wait in inside if wait.rank in early.missing), None)
    if more or met is None or end is None or met.record.step.site is None:
        return ()
    beside = [rank for rank, wait in lost.items() if rank != met.rank and _is_in(met.record.step, wait)]
    theirs = [_exchanged_with(early.rank, end.number, traffic.ends[rank]) for rank in beside]
    here = met.record.step.site
    later = all(site is not None and _is_made_behind(site, here) for site in theirs)
    return (met.rank,) if beside and later and _begun(end, met.rank, traffic) == end.number else ()


def _early_by_its_own_line(
    outside: Sequence[Wait], inside: Sequence[Wait], lost: Mapping[int, Wait], traffic: Traffic
) -> tuple[int, ...]:
    """The one that is in the collective before a message is exchanged with it, by a line of its own, where all others
    in that collective, several, have come to it by another one, and have exchanged before it, whoever with, what that
    line of its own has behind it, by the same name or by the very call; one of them has done as the one outside does.
    """
    (early, *more) = outside
    end = MessageEnd.of(early.rank, early.record)
    met = next((wait for wait in inside if wait.rank in early.missing), None)
    here = met.record.step.site if met is not None else None
    if more or met is None or end is None or here is None:
        return ()
    beside = {rank: wait for rank, wait in lost.items() if rank != met.rank and _is_in(met.record.step, wait)}
    turned = [
        (wait.record.step.site, site)
        for wait in beside.values()
        if (site := _last_before(wait, traffic, sends=not end.sends)) is not None
    ]
    as_early = any(
        (each.site, each.sends) == (end.site, end.sends) and each.record.index < wait.record.index
        for rank, wait in beside.items()
        for each in traffic.ends[rank]
    )
    there = [wait.record.step.site for wait in beside.values()]
    behind = any(site is not None and lines_behind({early.record.step.op}, site) for site in there)
    if len(beside) < PATTERN or not turned or not as_early or behind:
        return ()  # others come to it behind the collective, it may be
    return (met.rank,) if all(_is_turned_round(here, there, site) for there, site in turned) else ()


def _is_turned_round(here: Site, there: Site | None, exchanged: Site) -> bool:
    """Whether who is `here` exchanges behind it what others have `exchanged` before they came `there`."""
    if there is None:
        return False
    mine, theirs = from_one_function(here, there)
    before, _ = from_one_function(exchanged, there)
    function = function_around(mine)
    if function is None or function_around(theirs) is not function or function_around(before) is not function:
        return False
    if order_of(before, theirs) is not Order.AFTER:
        return False
    if order_of(mine, theirs) is Order.APART:
        names = {name_called(call) for call in calls_at(function, before.line)}
        return bool(lines_behind(names, mine))
    return order_of(mine, before) is Order.AFTER


def _last_before(wait: Wait, traffic: Traffic, *, sends: bool) -> Site | None:
    """Where a rank sent last, or received, before it came to what it waits in."""
    made = [each for each in traffic.ends[wait.rank] if each.sends is sends and each.record.index < wait.record.index]
    return made[-1].site if made else None


def _is_made_behind(site: Site, here: Site) -> bool:
    """Whether who is `here` makes the call at `site` later: it is written there again, or is of one list with it."""
    return in_turn_by_one_line(site, here) or bool(lines_alike(*from_one_function(site, here)))


def _alone_without(
    outside: Sequence[Wait], inside: Sequence[Wait], lost: Mapping[int, Wait], traffic: Traffic
) -> Wait | None:
    """Who is in the collective and has not begun the message that the one outside waits for, where all others, several,
    have begun as many with that one, which has come to theirs at the same line; some of these are in the collective, at
    the line of that one.
    """
    (early, *more) = outside
    end = MessageEnd.of(early.rank, early.record)
    met = next((wait for wait in inside if wait.rank in early.missing), None)
    if more or met is None or end is None:
        return None
    beside = [rank for rank in traffic.ends if rank not in (met.rank, early.rank)]
    there = {wait.record.step.site for rank, wait in lost.items() if rank in beside and _is_in(met.record.step, wait)}
    lines = {each.site for each in traffic.ends[early.rank] if each.peer in beside and each.sends is end.sends}
    begun = {_begun(end, rank, traffic) for rank in beside}
    if there != {met.record.step.site} or lines != {end.site} or len(beside) < PATTERN:
        return None
    return met if begun == {end.number + 1} and _begun(end, met.rank, traffic) == end.number else None


def _comes_by_a_helper(names: Collection[str], site: Site | None) -> bool:
    """Whether behind that line a function of the file is called in which one of `names` is."""
    return site is not None and comes_later(functions_calling(names, site.file), site)


def _exchanged_with(peer: int, number: int, ends: Sequence[MessageEnd]) -> Site | None:
    """Where the message of that number with `peer` was."""
    return next((each.site for each in ends if each.peer == peer and each.number == number), None)


def _made_by_all_others(odd: int, meeting: Step, views: Sequence[LedgerView]) -> Step | None:
    """The next call of the group for rank `odd`, if all others have made it where `odd` went another way."""
    here = next((record.step.site for record in reversed(views[odd].records) if record.step.message is not None), None)
    number = max(calls_on(meeting.target, views[odd]), default=-1) + 1
    made = [calls_on(meeting.target, view).get(number) for rank, view in enumerate(views) if rank != odd]
    if here is None or number >= meeting.sequence or len(made) < PATTERN:
        return None
    apart = all(step is not None and _is_apart(step.site, here) for step in made)
    return made[0] if apart else None


def _exchanges_it_later(outside: Sequence[Wait], inside: Sequence[Wait], traffic: Traffic) -> tuple[int, ...]:
    """The one that waits in a collective, and has written the other half of the message, as it made it before, behind
    that once more; nobody, if there is no such.
    """
    end = MessageEnd.of(outside[0].rank, outside[0].record)
    met = next((wait for wait in inside if wait.rank in outside[0].missing), None)
    behind = met.record.step.site if met is not None else None
    if end is None or met is None or len(outside) > 1 or behind is None or end.site is None:
        return ()
    own = {"send", "isend"} if end.sends else {"recv", "irecv"}
    if comes_later(own, end.site):  # what is behind the collective is for that
        return ()
    made = [[each.site for each in traffic.ends[rank] if each.stream == end.stream] for rank in (end.rank, met.rank)]
    regular = in_any_loop(end.site) and set(made[0]) == {end.site}  # whose messages come from one line of a loop
    last = made[1][-1] if made[1] else None
    return (met.rank,) if regular and last is not None and lines_alike(last, behind) else ()


def _too_early(outside: Sequence[Wait], meeting: Step, lost: Mapping[int, Wait]) -> tuple[int, ...]:
    """The one that waits for a message which, by the source, its peers get behind the collective `meeting`, where they
    wait; nobody, if they do not.
    """
    (early, *more) = outside
    here = early.record.step.site
    peers = [
        wait.record.step.site for rank, wait in lost.items() if _is_in(meeting, wait) and rank not in early.missing
    ]
    names = {"recv", "irecv"} if early.record.step.op != SEND else {"send", "isend"}
    if more or here is None or not peers:
        return ()
    if len(peers) > 1 and all(site is not None and _turned_round(here, site) for site in peers):
        return (early.rank,)
    if not comes_later({meeting.site.via if meeting.site else ""}, here):
        return ()
    if comes_later(names, here):  # it gets one behind that, as they do
        return ()
    later = all(site is not None and _is_apart(site, here) and comes_later(names, site) for site in peers)
    return (early.rank,) if later else ()


def _does_both(site: Site, awaited: Collection[str]) -> bool:
    """Whether the other half of what is called there is called in the same function: by the other rank, that is."""
    function = function_around(site)
    return function is not None and bool(lines_calling(awaited, function))


def _came_before_its_turn(outside: Sequence[Wait], meeting: Step, lost: Mapping[int, Wait]) -> tuple[int, ...]:
    """The one that waits for a message where all others are at `meeting`, behind which they make the call that it is
    in, word for word, under another condition; nobody, if they do not.
    """
    (early, *more) = outside
    here = early.record.step.site
    there = {rank: wait.record.step.site for rank, wait in lost.items() if _is_in(meeting, wait)}
    if more or here is None or len(there) < PATTERN or len(there) + 1 < len(lost):
        return ()
    if len(there) > PATTERN:  # whom the message is with may come by another way
        there = {rank: site for rank, site in there.items() if rank not in early.missing}
    pairs = [from_one_function(here, site) for site in there.values() if site is not None]
    later = len(pairs) == len(there) and all(made_later_too(mine, theirs) for mine, theirs in pairs)
    return (early.rank,) if later else ()


def _turned_round(one: Site, other: Site) -> bool:
    """Whether each is in a branch of its own, behind which it makes what the other is at, by the same words."""
    mine, theirs = from_one_function(one, other)
    apart = order_of(mine, theirs) is Order.APART
    return apart and bool(lines_alike(theirs, mine)) and bool(lines_alike(mine, theirs))


def _came_without_sending(
    inside: Sequence[Wait], outside: Sequence[Wait], lost: Mapping[int, Wait], traffic: Traffic
) -> tuple[int, ...]:
    """The one that waits in a collective before its message to the one outside, where all others that wait have begun
    theirs with that one, or are about to, some of which wait in the collective; nobody, if there is no such.
    """
    (early, *more), (met, *others) = inside, outside
    end = MessageEnd.of(met.rank, met.record)
    if more or others or end is None or met.missing != (early.rank,):
        return ()
    peers = {rank: wait for rank, wait in lost.items() if rank not in (early.rank, met.rank)}
    past = [rank for rank, wait in peers.items() if _is_in(early.record.step, wait)]
    begun = {
        _begun(end, rank, traffic)
        for rank, wait in peers.items()
        if wait.record.step.message is None or wait.missing != (met.rank,)  # who is held up by that one may come to it
    }
    return (early.rank,) if past and len(peers) >= PATTERN and begun == {end.number + 1} else ()


def _begun(end: MessageEnd, rank: int, traffic: Traffic) -> int:
    """How many messages `rank` has begun to exchange with the rank of `end`, as that does with its peer there."""
    if end.sends:
        return traffic.received(end.stream._replace(target=rank))
    return traffic.sent(end.stream._replace(source=rank))


def _is_in(call: Step, wait: Wait) -> bool:
    return (wait.record.step.target, wait.record.step.sequence) == (call.target, call.sequence)


def _is_apart(one: Site | None, other: Site) -> bool:
    return one is not None and order_of(one, other) is Order.APART


def _left_out(message: Wait, inside: Sequence[Wait], awaited: Collection[str]) -> bool:
    """Whether a rank that waits in a collective has gone past the other half of `message`."""
    here = message.record.step.site
    met = next((wait for wait in inside if wait.rank in message.missing), None)
    if met is None or met.record.step.site is None or here is None:
        return False
    if behind := nearest(awaited, here):
        return order_of(replace(here, line=behind), met.record.step.site) is Order.AFTER
    return False


def _another_call(odd: Wait, step: Step, views: Sequence[LedgerView]) -> Finding:
    """`odd` waits for a message where the others made the call `step`."""
    made = {rank: calls_on(step.target, view).get(step.sequence) for rank, view in enumerate(views)}
    others = {rank: theirs for rank, theirs in made.items() if theirs is not None and theirs.op == step.op}
    did = f"{'enters' if len(others) == 1 else 'enter'} {named(step)}"
    sides = (in_circle([odd]), side_of(list(others), did, [theirs.site for theirs in others.values()]))
    culprits = (odd.rank,) if len(others) > 1 else ()
    return Finding(FindingKind.CALL_ORDERING, step.call, "op", sides, culprits, step.target, step.sequence)
