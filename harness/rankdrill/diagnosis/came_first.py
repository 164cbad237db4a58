"""Which came first on each rank, its messages or a collective: who alone has it the other way round than all others.

Ledgers tell it, whatever the source turns round: a list, a branch, the names of a dictionary. Whether a rank would have
exchanged its messages later, or has left them out, only the source tells.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rankdrill.diagnosis.calls.common_caller import from_one_function, in_turn_by_one_line
from rankdrill.diagnosis.calls.loops import is_in_a_loop, share_a_loop
from rankdrill.diagnosis.calls.source import Order, functions_calling, lines_behind, order_of
from rankdrill.diagnosis.calls.tree import function_around, functions_in, name_called, tree_of
from rankdrill.diagnosis.deadlock import deadlock
from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.messages.account import Account
from rankdrill.diagnosis.messages.traffic import RECEIVING, SENDING, MessageEnd, Traffic
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.site import outward
from rankdrill.step import BATCH, Kind, Site, Step

__all__ = ["by_what_came_first"]

_HALVES = frozenset({"send", "isend", "recv", "irecv", BATCH})
FEWEST = 2  # ranks that say how it is meant
Function = tuple[str, str]
"""A function by its file and its name."""


class How(Enum):
    """How one rank came to it otherwise than all others."""

    EARLY = "its messages come before the collective"
    LATE = "its messages do not come before the collective"
    MORE = "it has one message more than all others have exchanged before the collective"
    WITHOUT = "its messages do not come between two collectives"


@dataclass(frozen=True)
class Alone:
    """The one rank that came to it otherwise."""

    rank: int
    how: How


@dataclass(frozen=True)
class _Round:
    """What one rank began, such messages, since the collective before the one that is looked at; and whether it has
    `entered` that.
    """

    begun: Sequence[MessageEnd]
    entered: bool

    @property
    def said(self) -> bool | None:
        """Whether messages came first; None where nothing came yet."""
        return True if self.begun else (False if self.entered else None)

    @property
    def begins_again(self) -> bool:
        """Whether the last message is one that it had begun before in this round: the next round's."""
        return any(_same(each, self.begun[-1]) for each in self.begun[:-1])

    @property
    def goes_on(self) -> bool:
        """Whether it has had one with the same peer in this round, by whatever line."""
        said = [(each.sends, each.stream) for each in self.begun]
        return said[-1:] != [] and said[-1] in said[:-1]


def by_what_came_first(
    circle: Sequence[Wait], lost: Mapping[int, Wait], views: Sequence[LedgerView], traffic: Traffic
) -> Finding | None:
    """What is wrong where of a `circle` some wait in a collective and others for messages, and one rank has come to it
    the other way round than all others; None where not one has.

    It is by order if the rank, or its peer, comes to the message behind the collective: by the source, or where both
    are of one list, for one line to call. Else the rank has left its message out.
    """
    outside = next(wait for wait in circle if wait.record.step.message is not None)
    message = outside.record.step
    meeting = next(wait for wait in circle if wait.record.step.message is None)
    if (more := _alone_at_its_line(outside, meeting, lost, traffic)) is not None:
        return Account(lost, dict(enumerate(views)), traffic).miscounted(more, (more.rank,))
    alone = _alone_the_other_way(message, meeting.record.step, views, traffic)
    wait = lost.get(alone.rank) if alone is not None else None
    if alone is None or wait is None:
        return None
    turned = deadlock(circle, (alone.rank,)) if any(each.rank == alone.rank for each in circle) else None
    if alone.how is How.MORE:
        more = MessageEnd.of(outside.rank, outside.record)
        if more is None or more.peer not in lost or _has_one_for_it(more, lost[more.peer], traffic):
            return None
        return Account(lost, dict(enumerate(views)), traffic).miscounted(more, (more.rank,))
    if alone.how is How.EARLY:
        return turned if _is_early(outside, meeting.record.step, lost, traffic) else None
    if wait.record.step.message is not None:
        return None
    if alone.how is How.LATE and _comes_to_it(wait, message, traffic):
        return turned if _others_made_it(outside, traffic) else None  # it may be meant to come behind it
    ends = (MessageEnd.of(rank, each.record) for rank, each in lost.items() if alone.rank in each.missing)
    end = next((each for each in ends if each is not None), None)
    if end is None or any(each.peer == end.rank and each.rank != end.peer for each in traffic.left_over()):
        return None  # it may have named the wrong peer
    if len(traffic.ends) - 1 <= FEWEST and _sends_to_several(end, traffic):
        return None  # one has taken it and the other not: it may have been for one alone
    if not _went_past(wait, end, traffic):
        return None
    return Account(lost, dict(enumerate(views)), traffic).missing(end, (alone.rank,))


def _sends_to_several(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether its rank sends to several from that line."""
    return end.sends and len({each.peer for each in traffic.ends[end.rank] if each.sends and each.site == end.site}) > 1


def _is_early(outside: Wait, meeting: Step, lost: Mapping[int, Wait], traffic: Traffic) -> bool:
    """Whether those that the one `outside` waits for come to the other half behind the collective, by the source."""
    message = outside.record.step
    if meeting.site is not None and message.site is not None and in_turn_by_one_line(meeting.site, message.site):
        return True
    if not meeting.sequence:
        return False  # the others may be to exchange nothing at all
    peers = [lost[rank] for rank in outside.missing if rank in lost]
    return any(_comes_to_it(peer, message, traffic, _made_for(outside, peer, traffic)) for peer in peers)


def _alone_at_its_line(outside: Wait, meeting: Wait, lost: Mapping[int, Wait], traffic: Traffic) -> MessageEnd | None:
    """What a rank waits for at a line that nobody else has come to, where others, several, have made all theirs in that
    function, and are in the collective behind it; None, if it is no such, or its peer has gone past what may be for it.
    """
    end = MessageEnd.of(outside.rank, outside.record)
    if end is None or end.site is None or end.peer not in lost:
        return None
    if any(each.site == end.site and each.number < traffic.met(each.stream) for each in traffic.ends[end.rank]):
        return None  # what met from there before says that it is no such
    function = (end.site.file, end.site.function)
    made = {
        rank: [each for each in ends if each.site is not None and (each.site.file, each.site.function) == function]
        for rank, ends in traffic.ends.items()
    }
    beside = [rank for rank, ends in made.items() if ends and rank != end.rank]
    if any(each.site.place == end.site.place for rank in beside for each in made[rank] if each.site is not None):
        return None
    of_all = all(rank in lost and _is_of(meeting, lost[rank]) for rank in (*beside, end.peer))
    if len(beside) < FEWEST or not of_all or made[end.peer] or len(made[end.rank]) < FEWEST:
        return None
    same = all(_same_ends(made[rank]) <= _same_ends(made[end.rank]) for rank in beside)
    return end if same and not _has_one_for_it(end, lost[end.peer], traffic) else None


def _others_made_it(outside: Wait, traffic: Traffic) -> bool:
    """Whether other ranks have made such messages, too, by that line or by those that met it."""
    lines, _ = _known(outside.record.step.site, traffic)
    made = (each.site for rank, ends in traffic.ends.items() if rank != outside.rank for each in ends)
    return any(site is not None and site.place in lines for site in made)


def _same_ends(ends: Sequence[MessageEnd]) -> set[tuple[bool, Site | None]]:
    return {(each.sends, each.site) for each in ends}


def _is_of(meeting: Wait, wait: Wait) -> bool:
    one, other = meeting.record.step, wait.record.step
    return other.message is None and (one.target, one.sequence) == (other.target, other.sequence)


def _has_one_for_it(end: MessageEnd, peer: Wait, traffic: Traffic) -> bool:
    """Whether a function that the peer of `end` made messages in, or waits in, or one that such calls, has the other
    half of such, which nobody has come to.
    """
    halves = RECEIVING if end.sends else SENDING
    used = {each.site.place for ends in traffic.ends.values() for each in ends if each.site is not None}
    own = [each.site for each in traffic.ends[end.peer] if each.site is not None]
    lines: set[tuple[str, int]] = set()
    for site in (*outward(peer.record.step.site), *own):
        if (function := function_around(site)) is not None:
            lines |= {(site.file, line) for line in _lines_with(halves, _called_from(function, site.file))}
    return not lines <= used


def _called_from(function: ast.AST, file: str) -> list[ast.AST]:
    """It, and the functions of its file that it calls, or that those call, by their names."""
    tree, found = tree_of(file), [function]
    for one in found:
        names = {name_called(node) for node in ast.walk(one) if isinstance(node, ast.Call)}
        more = [each for each in functions_in(tree) if each.name in names] if tree is not None else []
        found += [each for each in more if each not in found]
    return found


def _lines_with(names: Collection[str], functions: Collection[ast.AST]) -> set[int]:
    """Where one of `names` is called, or given to what calls it."""
    nodes = (node for function in functions for node in ast.walk(function))
    return {
        node.lineno
        for node in nodes
        if (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.Name) and node.id in names)
    }


def _went_past(wait: Wait, end: MessageEnd, traffic: Traffic) -> bool:
    """Whether a run of one function comes to where the rank waits, and to where others do the other half of `end`."""
    here = wait.record.step.site
    made = [each for rank, ends in traffic.ends.items() if rank not in (wait.rank, end.rank) for each in ends]
    _, functions = _known(end.site, traffic)
    sites = {
        each.site
        for each in made
        if each.sends is not end.sends and each.site is not None and (each.site.file, each.site.function) in functions
    }
    if here is None or not sites:
        return False
    return all(order_of(*from_one_function(site, here)) in (Order.AFTER, Order.BEFORE) for site in sites)


def _made_for(outside: Wait, peer: Wait, traffic: Traffic) -> set[tuple[str, int]]:
    """The lines by which `peer` has made its halves of the messages before the one that is waited for `outside`."""
    end = MessageEnd.of(outside.rank, outside.record)
    made = [each for each in traffic.ends[peer.rank] if end is not None and each.stream == end.stream]
    return {each.site.place for each in made if each.site is not None}


def _comes_to_it(wait: Wait, message: Step, traffic: Traffic, made: Collection[tuple[str, int]] = ()) -> bool:
    """Whether behind where a rank waits it may come to one half of messages such as `message`, as the source says; or
    by the list that it is in. `made` are lines of such that are known.

    Once some of these have met it is known which functions they are in; before that any but those of other messages.
    """
    lines, functions = _known(message.site, traffic)
    ends = [(end, end.site) for made in traffic.ends.values() for end in made if end.site is not None]
    used = {site.place for _, site in ends}
    others = {(site.file, site.function) for _, site in ends} - functions
    here = wait.record.step.site
    if here is not None and any(in_turn_by_one_line(here, site) for _, site in ends if site.place in lines):
        return True
    met = any(traffic.other_end(end) is not None for end, site in ends if site.place in lines)
    for site in outward(here):
        direct = {(site.file, line) for line in lines_behind(_HALVES, site)}
        new = set[tuple[str, int]]() if met and (site.file, site.function) not in functions else direct - used
        if direct & {*lines, *made} or new:
            return True
        leading = {(site.file, name) for name in _leading_to(_HALVES, site.file)}
        leading = leading & functions if met else leading - others
        if lines_behind({name for _, name in leading}, site):
            return True
    return False


def _leading_to(names: Collection[str], file: str) -> set[str]:
    """The functions of `file` that call one of `names`, or a function that does."""
    found: set[str] = set()
    while more := functions_calling({*names, *found}, file) - found:
        found |= more
    return found


def _alone_the_other_way(message: Step, meeting: Step, views: Sequence[LedgerView], traffic: Traffic) -> Alone | None:
    """Who of the group came to the collective of `meeting` before messages such as `message`, where all others that
    have such came to theirs first, or the other way round; None, if there is not one against several.

    From the second round on everybody has had messages before the collective, those of the round before: there it
    counts how ranks began.
    """
    functions = _known(message.site, traffic)[1]
    members = next((found[meeting.target] for found in map(members_in, views) if meeting.target in found), traffic.ends)

    def rounds_to(number: int, functions: Collection[Function]) -> dict[int, _Round]:
        return {rank: _round(rank, meeting, number, functions, views, traffic) for rank in members}

    rounds = rounds_to(meeting.sequence, functions)
    at_first = {each.said for each in rounds_to(0, functions).values()} if meeting.sequence else {True}
    if len(at_first) > 1:
        return None
    if at_first == {True}:
        if (late := _one(rounds, without=True)) is not None:
            return Alone(late, How.LATE)
        early = _one(rounds, without=False) if not meeting.sequence else None
        return Alone(early, How.EARLY) if early is not None else None
    if (skipped := _one(rounds, without=True)) is not None:
        return Alone(skipped, How.WITHOUT)
    outside = [rank for rank, each in rounds.items() if not each.entered]
    if len(outside) != 1 or len(rounds) <= FEWEST:
        return None
    begun = rounds[outside[0]]
    if begun.begins_again:
        return Alone(outside[0], How.EARLY)
    rounds = rounds_to(meeting.sequence, functions | _functions_of(begun, traffic))
    if not rounds[outside[0]].goes_on or not _all_alike([each for each in rounds.values() if each.entered]):
        return None
    names = {meeting.op, meeting.site.via if meeting.site is not None else meeting.op}
    comes_to_it = any(_leads_to(names, site) for site in outward(message.site))
    return Alone(outside[0], How.EARLY if comes_to_it else How.MORE)


def _functions_of(begun: _Round, traffic: Traffic) -> set[Function]:
    """Where all that was exchanged by the way of the last message of a round was sent and received."""
    last = begun.begun[-1].stream if begun.begun else None
    sites = (each.site for ends in traffic.ends.values() for each in ends if each.stream == last)
    return {(site.file, site.function) for site in sites if site is not None}


def _all_alike(rounds: Sequence[_Round]) -> bool:
    """Whether all have begun the same in theirs, line by line, and not nothing."""
    lines = {tuple(end.site for end in each.begun) for each in rounds}
    return len(lines) == 1 and lines != {()}


def _leads_to(names: Collection[str], site: Site) -> bool:
    """Whether one of `names`, or what calls one, is called behind `site`, before a loop around that begins anew."""
    lines = lines_behind({*names, *_leading_to(names, site.file)}, site)
    return any(share_a_loop(site, replace(site, line=line)) for line in lines) or (
        bool(lines) and not is_in_a_loop(site)
    )


def _known(site: Site | None, traffic: Traffic) -> tuple[set[tuple[str, int]], set[Function]]:
    """That line, and those whose messages met messages of it, or of such; and the functions of these lines."""
    lines = {site.place} if site is not None else set()
    functions = {(site.file, site.function)} if site is not None else set()
    for ends in traffic.ends.values():
        for end in ends:
            other = traffic.other_end(end)
            if end.site is None or other is None or other.site is None:
                continue
            pair = (end.site, other.site)
            if not lines.isdisjoint(each.place for each in pair):
                lines |= {each.place for each in pair}
                functions |= {(each.file, each.function) for each in pair}
    return lines, functions


def _one(rounds: Mapping[int, _Round], *, without: bool) -> int | None:
    """The one rank that says something else than several others; nobody says both."""
    said = {rank: each.said for rank, each in rounds.items()}
    odd = [rank for rank, first in said.items() if first is not None and first is not without]
    most = [rank for rank, first in said.items() if first is without]
    return odd[0] if len(odd) == 1 and len(most) >= FEWEST else None


def _round(
    rank: int,
    meeting: Step,
    number: int,
    functions: Collection[Function],
    views: Sequence[LedgerView],
    traffic: Traffic,
) -> _Round:
    since, entered = (_begun(views[rank], meeting, each) for each in (number - 1, number))
    begun = [
        end
        for end in traffic.ends[rank]
        if end.site is not None
        and (end.site.file, end.site.function) in functions
        and (since is None or end.record.index > since)
        and (entered is None or end.record.index < entered)
    ]
    return _Round(begun, entered is not None)


def _same(one: MessageEnd, other: MessageEnd) -> bool:
    return (one.sends, one.stream, one.site) == (other.sends, other.stream, other.site)


def _begun(view: LedgerView, meeting: Step, number: int) -> int | None:
    """Which step of the rank that call of the group was; None where it has not come to it."""
    if number < 0:
        return None
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        step = record.step
        if (step.target, step.sequence) == (meeting.target, number):
            return record.index
    return None
