"""Hangs in point to point: the one message that was never sent or never received, or a cycle of such waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from rankdrill.diagnosis.calls.source import comes_to_the_same
from rankdrill.diagnosis.deadlock import circle_in, deadlock, in_circles_alike
from rankdrill.diagnosis.finding import Finding
from rankdrill.diagnosis.messages.account import Account
from rankdrill.diagnosis.messages.ahead import further_down, not_as_all_there, turned_to_another
from rankdrill.diagnosis.messages.as_told import not_told_to_leave, told_to_leave
from rankdrill.diagnosis.messages.balance import is_in_balance, out_of_balance
from rankdrill.diagnosis.messages.chains import left_its_chain
from rankdrill.diagnosis.messages.counts import (
    beyond_the_border,
    by_those_beside,
    left_its_line,
    left_out_at_the_end,
    miscounted,
    once_at_its_line,
    out_of_step,
)
from rankdrill.diagnosis.messages.from_anybody import sent_with_another_tag
from rankdrill.diagnosis.messages.habits import Departure, are_of_one_library, departure
from rankdrill.diagnosis.messages.misaddressed import Standing, in_another_branch, misaddressed, never_met
from rankdrill.diagnosis.messages.never_there import left_out_of_a_batch, never_there
from rankdrill.diagnosis.messages.pairs import left_its_pair
from rankdrill.diagnosis.messages.rows import past_its_row
from rankdrill.diagnosis.messages.sent_to_anybody import too_many_to_anybody
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.diagnosis.waits import Wait, hopeless
from rankdrill.ledger import LedgerView
from rankdrill.step import ANYBODY

__all__ = ["one_too_many", "sent_astray", "to_another", "unmatched_message", "unreceived_message"]


def unmatched_message(
    waits: Mapping[int, Wait], views: Mapping[int, LedgerView], returned: Collection[int]
) -> Finding | None:
    """What is wrong where ranks wait for ever for a message; None where that is not why they wait.

    `views` are all ranks' ledgers, `returned` the ranks that came to their end; those in neither `returned` nor
    `waits` may still come.
    """
    lost = hopeless(waits, views.keys() - waits.keys() - set(returned))
    direct = {rank: wait for rank, wait in lost.items() if not set(wait.missing).isdisjoint(returned)}
    if any(wait.record.step.message is None for wait in direct.values()):
        return None  # who left out a collective explains more
    roots = direct or {rank: lost[rank] for rank in circle_in(lost)}
    if all(wait.record.step.message is None for wait in roots.values()):
        return None
    ends = list(_ends(roots))
    traffic = Traffic(views)
    account = Account(waits, views, traffic)
    from_anybody = account.misaddressed(sent_with_another_tag(lost, traffic))
    if from_anybody is not None:
        return from_anybody
    if ends and len(ends) == len(roots) and are_of_one_library(ends):
        return _within_a_library(ends, list(roots.values()), lost, returned, account)
    circle = not direct and len(ends) == len(roots)
    finding = _of_ends(ends, ends + traffic.left_over(), waits, returned, traffic, account, counted=not circle)
    if finding is None and circle:
        return _of_circle(ends, list(roots.values()), lost, traffic, account)
    if finding is None and ends:
        return account.missing(ends[0], (ends[0].peer,) if _explains(ends[0].peer, ends, traffic, returned) else ())
    return finding or next((account.nobody_sends(wait) for wait in roots.values() if _from_anybody(wait)), None)


def _within_a_library(
    ends: Sequence[MessageEnd],
    roots: Sequence[Wait],
    lost: Mapping[int, Wait],
    returned: Collection[int],
    account: Account,
) -> Finding:
    """What is wrong where all messages are a library's own, a pipeline's schedule say: one line of the user's makes
    all, in an order that no line tells. At fault is who has returned where several wait for it, or for one that does,
    in that library; else nobody can say.
    """
    gone = {peer: {end.rank for end in ends if end.peer == peer} for end in ends if (peer := end.peer) in returned}
    if not gone:
        return deadlock(roots, ())
    let_down = [peer for peer, ranks in gone.items() if len(ranks) > 1]
    if not let_down and len(gone) == len(returned) == 1 and are_of_one_library(all_ends := list(_ends(lost))):
        let_down = list(gone) if len(all_ends) == len(lost) > 1 else []
    peer = let_down[0] if len(let_down) == 1 else next(iter(gone))
    first = next(end for end in ends if end.peer == peer)
    return account.missing(first, (peer,) if let_down == [peer] else ())


def sent_astray(lost: Mapping[int, Wait], views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where one of those that wait for ever went to another rank than it used to from there, or past the
    end of its row.
    """
    ends = list(_ends(lost))
    if not ends:
        return None
    traffic = Traffic(views)
    account = Account(lost, views, traffic)
    if (past := past_its_row(ends, traffic)) is not None:
        return account.missing(past, (past.rank,))
    if len(ends) < 2:
        return None
    return account.misaddressed(in_another_branch(ends, traffic, {rank: wait.missing for rank, wait in lost.items()}))


def one_too_many(lost: Mapping[int, Wait], views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where one that waits for ever has sent, or receives, once more than in the round before, and the
    other rank, which has done as many as then, waits in the collective that ends the round.
    """
    ends, traffic = list(_ends(lost)), Traffic(views)
    # The first that two ranks exchange at all has no round before it to be one too many of.
    more = (end for end in ends if end.number and out_of_step(end, lost, traffic) == (end.rank,))
    return next((Account(lost, views, traffic).miscounted(end, (end.rank,)) for end in more), None)


def to_another(lost: Mapping[int, Wait], views: Mapping[int, LedgerView], returned: Collection[int]) -> Finding | None:
    """What is wrong where one that waits for ever names another rank than the one that waits for it, as those of all
    others show; None where these do not.
    """
    ends, traffic = list(_ends(lost)), Traffic(views)
    stands = Standing(returned, {rank: wait.record.step.site for rank, wait in lost.items()})
    found = (misaddressed(end, traffic.left_over(), traffic, stands) for end in ends)
    told = next((each for each in found if each is not None and each.odd is not None), None)
    return Account(lost, views, traffic).misaddressed(told)


def unreceived_message(views: Mapping[int, LedgerView]) -> Finding | None:
    """What is wrong where all ranks returned, and a message was sent and never received, or the other way round."""
    traffic = Traffic(views)
    left_over = traffic.left_over()
    account = Account({}, views, traffic)
    if (more := too_many_to_anybody(left_over, traffic, views)) is not None:
        return more
    finding = _of_ends(left_over, left_over, {}, views.keys(), traffic, account, counted=True)
    return finding or (account.missing(left_over[0], ()) if left_over else None)


def _of_ends(
    ends: Sequence[MessageEnd],
    left_over: Sequence[MessageEnd],
    waits: Mapping[int, Wait],
    returned: Collection[int],
    traffic: Traffic,
    account: Account,
    *,
    counted: bool,
) -> Finding | None:
    """What explains one of `ends`, if anything does: what tells most is asked first, of all of them.

    Counts tell nothing where all ranks wait in the middle of what they do: then they are not `counted`.
    """
    stands = Standing(returned, {rank: wait.record.step.site for rank, wait in waits.items()})
    left_over = list({(end.rank, end.record.index): end for end in left_over}.values())
    gone_past = _gone_past_several(left_over, stands)

    firsts = {(end.rank, end.peer): end for end in reversed(ends)}

    def is_first(end: MessageEnd) -> bool:
        """Whether it is the first between its two ranks: what they were told is the same for all."""
        return firsts[end.rank, end.peer] is end

    def told(end: MessageEnd) -> tuple[int, ...]:
        return told_to_leave(end, traffic, stands) or not_told_to_leave(end, traffic, stands)

    def is_in_step(end: MessageEnd) -> bool:
        """Whether the peer waits for the rank of `end`, where it has come to as others do."""
        wait = waits.get(end.peer)
        other = MessageEnd.of(end.peer, wait.record) if wait is not None else None
        return other is not None and other.peer == end.rank and is_in_balance(other, traffic)

    by_counts: list[Callable[[MessageEnd], Finding | None]] = [
        lambda end: account.miscounted(end, miscounted(end, traffic, left_over)),
        lambda end: account.miscounted(end, out_of_step(end, waits, traffic)),
    ]
    explanations: list[Callable[[MessageEnd], Finding | None]] = [
        lambda end: account.misaddressed(misaddressed(end, left_over, traffic, stands, peers=False)),
        lambda end: account.misaddressed(misaddressed(end, left_over, traffic, stands)),
        lambda end: account.miscounted(end, told(end) if is_first(end) else ()),
        lambda end: account.miscounted(end, () if is_in_step(end) else by_those_beside(end, traffic)),
        lambda end: account.miscounted(end, left_its_line(end, traffic, returned)),
        lambda end: account.missing(end, (end.peer,)) if end.peer == gone_past else None,
        lambda end: account.miscounted(end, beyond_the_border(end, traffic, left_over)),
        lambda end: account.left_out(end, never_there(end, traffic, stands) or left_out_of_a_batch(end, traffic)),
        lambda end: account.miscounted(end, once_at_its_line(end, traffic, left_over)),
        lambda end: account.miscounted(end, left_out_at_the_end(end, traffic, returned)),
        lambda end: account.miscounted(end, left_its_chain(end, traffic, returned)),
        lambda end: account.miscounted(end, left_its_pair(end, traffic, returned)),
        lambda end: account.stopped_short(end, returned),
        *(by_counts if counted else ()),
        lambda end: account.misaddressed(misaddressed(end, left_over, traffic, stands, guess=True)),
    ]
    found = (explain(end) for explain in explanations for end in ends)
    return next((finding for finding in found if finding is not None), None)


def _gone_past_several(left_over: Sequence[MessageEnd], stands: Standing) -> int | None:
    """The one rank that will not come to what several wait for; None where others, too, will not come to something."""
    missed = [end for end in left_over if stands.keeps_away_from(end)]
    peers, waiting = {end.peer for end in missed}, {end.rank for end in missed}
    return peers.pop() if len(peers) == 1 and len(waiting) > 1 else None


def _explains(peer: int, ends: Sequence[MessageEnd], traffic: Traffic, returned: Collection[int]) -> bool:
    """Whether `peer` has left out all that is missing: between two, one more of many is as likely as one less."""
    if peer not in returned or any(end.peer != peer for end in ends):
        return False
    return len({end.rank for end in ends}) > 1 or not any(traffic.met(end.stream) for end in ends)


def _ends(waits: Mapping[int, Wait]) -> Iterator[MessageEnd]:
    ordered = sorted(waits.values(), key=lambda wait: (wait.record.begin_ns, wait.rank))
    for wait in ordered:
        end = MessageEnd.of(wait.rank, wait.record)
        if end is not None:
            yield end


def _from_anybody(wait: Wait) -> bool:
    message = wait.record.step.message
    return message is not None and message.peer == ANYBODY


def _is_still_due(left: Departure) -> bool:
    """Whether what a rank used to do is written word for word behind where it waits: it came to the other first."""
    here, usual = left.end.site, left.usual.site
    return here is not None and usual is not None and comes_to_the_same(here, usual)


def _others_come_first_to(tag: int, end: MessageEnd, traffic: Traffic) -> bool:
    """Whether all others that exchange both with the peer of `end`, the same way, come to `tag` before they come to its
    tag.
    """
    orders = set[bool]()
    for rank, ends in traffic.ends.items():
        if rank in (end.rank, end.peer):
            continue
        first: dict[int, int] = {}
        for each in ends:
            if (each.sends, each.peer) == (end.sends, end.peer):
                first.setdefault(each.stream.tag, each.record.index)
        if {end.stream.tag, tag} <= first.keys():
            orders.add(first[tag] < first[end.stream.tag])
    return orders == {True}


def _turned_round_alone(ends: Sequence[MessageEnd], traffic: Traffic) -> tuple[int, ...]:
    """The one of two that wait for each other by two tags which comes to one before the other, where others that do the
    same with its peer come to that other one first.
    """
    if len(ends) != 2 or ends[0].stream._replace(tag=0) != ends[1].stream._replace(tag=0):
        return ()
    pairs = (ends[0], ends[1]), (ends[1], ends[0])
    odd = [end.rank for end, other in pairs if _others_come_first_to(other.stream.tag, end, traffic)]
    return tuple(odd) if len(odd) == 1 else ()


def _of_circle(
    ends: Sequence[MessageEnd], cycle: Sequence[Wait], lost: Mapping[int, Wait], traffic: Traffic, account: Account
) -> Finding:
    """Each waits for the next: for want of a message that one of them used to send or receive here, or by order."""
    ahead = further_down(ends, traffic)
    if ahead is not None:
        return account.missing(ahead[0], (ahead[1],))
    waiting_too = list(_ends(lost))
    turned = turned_to_another(ends, waiting_too, traffic) or not_as_all_there(ends, waiting_too, traffic)
    if (told := account.misaddressed(turned)) is not None:
        return told
    left = departure(ends, traffic)
    astray = account.misaddressed(never_met(ends)) if left is None else None
    if astray is not None:
        return astray
    if left is None and (behind := out_of_balance(ends, traffic)) is not None:
        return account.missing(behind[0], (behind[1],))
    if left is None:
        return deadlock(cycle, _turned_round_alone(ends, traffic), in_circles_alike(cycle, lost))
    if _is_still_due(left):  # by order, which is one's as well as the other's, where others do not tell
        return deadlock(cycle, _turned_round_alone(ends, traffic))
    if left.end.sends is left.usual.sends:
        return deadlock(cycle, (left.end.rank,))
    waiting = next((end for end in ends if end.peer == left.end.rank and end.sends is not left.usual.sends), None)
    if waiting is None or waiting.stream != left.usual.stream:
        return deadlock(cycle, ())
    return account.missing(waiting, (left.end.rank,), left.usual.site)
