"""Receives from anybody that are more or fewer than what is sent to them: nobody is named there, so numbers tell.

Each of the others has sent as many, several of them, and one has sent one less, which makes up what the receiver waits
for; or one more, for which it has no receive. Else the receiver takes one more than there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.calls.by_rank import may_come, named_to_come
from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.source import Order, comes_later, comes_to_the_same, order_of
from rankdrill.diagnosis.deadlock import deadlock
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.groups import members_in
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.messages.account import Account
from rankdrill.diagnosis.messages.misaddressed import Misaddressed
from rankdrill.diagnosis.messages.traffic import MessageEnd, Stream, Traffic
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import ANYBODY, RECV, SEND, Kind, Site

__all__ = ["short_of_anybody", "too_many_to_anybody"]

FEWEST = 2  # of as many messages, the receiver's own count among them


def short_of_anybody(lost: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """What is wrong where one of the `lost` ranks, which wait for ever, waits for a message from anybody, or sends to
    one that receives from anybody; None where that cannot be told by what others have sent to it.
    """
    waiting = [wait for wait in lost.values() if _is_from_anybody(wait)]
    sending = any(wait.record.step.op == SEND and wait.record.step.message is not None for wait in lost.values())
    if not (waiting or sending) or any(view.dropped or view.torn for view in views):
        return None
    traffic = Traffic(dict(enumerate(views)))
    found = (_short_of(wait, lost, views, traffic) for wait in waiting)
    short = next((finding for finding in found if finding is not None), None)
    return short or (too_many_to_anybody(traffic.left_over(), traffic, dict(enumerate(views))) if sending else None)


def too_many_to_anybody(
    left_over: Sequence[MessageEnd], traffic: Traffic, views: Mapping[int, LedgerView]
) -> Finding | None:
    """What is wrong where one message is `left_over` that was sent to a rank which names no sender: that one of those
    that send to it has sent one more than each of the others; None where that is not so.
    """
    sends = [end for end in left_over if end.sends]
    if len(sends) != 1 or len(left_over) != 1 or any(view.dropped or view.torn for view in views.values()):
        return None
    stream = sends[0].stream
    received = [each for each in traffic.ends[stream.target] if not each.sends and _goes_the_way_of(stream, each)]
    if not received or not all(each.record.step.is_from_anybody for each in received):
        return None
    sent = {rank: traffic.sent(stream._replace(source=rank)) for rank in traffic.ends}
    senders = {rank: count for rank, count in sent.items() if count}
    usual = min(senders.values())
    odd = [rank for rank, count in senders.items() if count == usual + 1]
    others = [rank for rank, count in senders.items() if count == usual]
    if len(odd) != 1 or len(others) < FEWEST or len(odd) + len(others) < len(senders):
        return None
    sides = (_sent(stream, odd, usual + 1, traffic), _sent(stream, others, usual, traffic))
    return Finding(FindingKind.UNMATCHED, f"recv on {stream.group!r}", "extra send", sides, tuple(odd))


def _goes_the_way_of(stream: Stream, end: MessageEnd) -> bool:
    return end.stream._replace(source=stream.source) == stream


def _is_from_anybody(wait: Wait) -> bool:
    step = wait.record.step
    return step.op == RECV and step.message is not None and step.message.peer == ANYBODY


def _short_of(wait: Wait, lost: Mapping[int, Wait], views: Sequence[LedgerView], traffic: Traffic) -> Finding | None:
    step = wait.record.step
    assert step.message is not None
    named = (found[step.target] for found in map(members_in, views) if step.target in found)
    others = [rank for rank in next(named, tuple(range(len(views)))) if rank != wait.rank]
    streams = {rank: Stream(step.target, rank, wait.rank, step.message.tag) for rank in others}
    sent = {rank: traffic.sent(stream) for rank, stream in streams.items()}
    others = _may_send(sent, streams, lost, traffic, len(views))
    sent = {rank: sent[rank] for rank in others}
    most, wanted = max(sent.values(), default=0), _received(wait, views[wait.rank])
    short = [rank for rank, count in sent.items() if count < most]
    if not most or wanted != sum(sent.values()) + 1:
        return None
    strays = [
        end
        for end in traffic.left_over()
        if end.sends and end.rank in short and _is_in_its_place(end, _last_sites(streams[end.rank], others, traffic))
    ]
    # Who has ended may have left out several.
    few = len(short) == 1 and (sent[short[0]] == most - 1 or short[0] not in lost or strays)
    if few and len(others) >= FEWEST:
        (rank,) = short
        if rank in lost and not strays and _is_held_up(lost[rank], wait, _last_sites(streams[rank], others, traffic)):
            return None
        end = MessageEnd(wait.rank, streams[rank], sent[rank], wait.record)
        return _left_out(end, strays, lost, views, traffic)
    if strays:
        return None
    there = [lost[rank] for rank in others if rank in lost]
    usual = set[Site]().union(*(_last_sites(streams[rank], others, traffic) for rank in short))
    if any(each.rank in short and _is_held_up(each, wait, usual) for each in there):
        return None
    if any(_waits_for(wait.rank, each) or wait.rank not in each.missing for each in there):
        return None  # that one was to answer first, it may be, or is held up by another one
    if {count for count in sent.values() if count} == {most} and len(others) - len(short) >= FEWEST:
        senders = [rank for rank in others if rank not in short]
        return _one_more(wait, senders, most, traffic)
    return None


def _is_held_up(there: Wait, wait: Wait, usual: Collection[Site]) -> bool:
    """Whether the rank that is `there` may come to one of the `usual` lines, once those have come that it waits for: it
    waits for others than the rank in `wait` as well, or for others alone.
    """
    here = there.record.step.site
    if wait.rank not in there.missing:
        return True
    return (
        there.anyone
        and here is not None
        and any(
            order_of(*from_one_function(here, site)) is Order.AFTER and there.rank in may_come(site, [there.rank])
            for site in usual
        )
    )


def _may_send(
    sent: Mapping[int, int], streams: Mapping[int, Stream], lost: Mapping[int, Wait], traffic: Traffic, size: int
) -> list[int]:
    """Those of the ranks that have sent so many that may send at all: by the source, those that conditions around the
    lines of the others name, and who is still to come to such a call elsewhere.
    """
    sites = {
        end.site
        for rank, ends in traffic.ends.items()
        for end in ends
        if end.sends and rank in streams and end.stream == streams[rank] and end.site is not None
    }
    named = frozenset[int]().union(*(named_to_come(site, sent, size) for site in sites)) or frozenset(sent)
    later = {
        rank for rank, wait in lost.items() if (site := wait.record.step.site) and comes_later({"send", "isend"}, site)
    }
    return [rank for rank, count in sent.items() if count or rank in named or rank in later]


def _is_in_its_place(stray: MessageEnd, usual: Collection[Site]) -> bool:
    """Whether it may be what was to be sent at the `usual` lines: it comes from one, or from where that is left out."""
    site = stray.site
    return not usual or site is None or any(site == each or order_of(site, each) is Order.APART for each in usual)


def _waits_for(rank: int, wait: Wait) -> bool:
    """Whether it is a message from `rank` that it waits for."""
    message = wait.record.step.message
    return message is not None and wait.record.step.op == RECV and message.peer == rank


def _received(wait: Wait, view: LedgerView) -> int:
    """How many with that tag it has begun to receive, the one that it waits for among them."""
    step = wait.record.step
    assert step.message is not None
    tag = step.message.tag
    records = view.where(lambda kind, state: kind is Kind.COLLECTIVE)
    made = (each.step for each in records if each.step.op == RECV and each.step.target == step.target)
    return sum(each.message is not None and each.message.tag == tag for each in made)


def _left_out(
    end: MessageEnd,
    strays: Sequence[MessageEnd],
    lost: Mapping[int, Wait],
    views: Sequence[LedgerView],
    traffic: Traffic,
) -> Finding:
    """The peer of `end` has sent it less than all others: to another rank, or with another tag, or not yet."""
    account = Account(lost, dict(enumerate(views)), traffic)
    if strays:
        argument = "peer" if strays[0].peer != end.rank else "tag"
        told = account.misaddressed(Misaddressed((strays[0], end), argument, strays[0]))
        assert told is not None
        return told
    sites = _last_sites(end.stream, [rank for rank in traffic.ends if rank != end.peer], traffic)
    here = lost[end.peer].record.step.site if end.peer in lost else None
    if here is not None and any(comes_to_the_same(here, site) for site in sites):
        return deadlock([lost[end.peer], lost[end.rank]], (end.peer,))
    return account.missing(end, (end.peer,), sites.pop() if len(sites) == 1 else None)


def _last_sites(stream: Stream, ranks: Collection[int], traffic: Traffic) -> set[Site]:
    """Where `ranks` sent the last one of those that go the way of `stream`."""
    found = set[Site]()
    for rank in ranks:
        made = [each for each in traffic.ends[rank] if each.sends and each.stream == stream._replace(source=rank)]
        if made and made[-1].site is not None:
            found.add(made[-1].site)
    return found


def _one_more(wait: Wait, senders: Sequence[int], count: int, traffic: Traffic) -> Finding:
    """The receiver takes one more than all have sent."""
    step = wait.record.step
    assert step.message is not None
    waits = side_of([wait.rank], words.waits(wait.record), [step.site])
    stream = Stream(step.target, senders[0], wait.rank, step.message.tag)
    return Finding(
        FindingKind.UNMATCHED,
        f"{step.op} on {step.target!r}",
        "extra recv",
        (waits, _sent(stream, senders, count, traffic)),
        (wait.rank,),
    )


def _sent(stream: Stream, senders: Sequence[int], count: int, traffic: Traffic) -> Side:
    sites = [next(iter(_last_sites(stream, [rank], traffic)), None) for rank in senders]
    many = "one message" if count == 1 else f"{count} messages"
    return side_of(
        senders, f"have sent {many} each to rank {stream.target} {words.tagged(stream.tag, stream.group)}", sites
    )
