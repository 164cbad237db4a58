"""Who has come to a collective with fewer messages than all others have sent before it, from one line to one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import NO_SEQUENCE, Kind, Site, Step

__all__ = ["has_left_its_loop", "short_of_what_others_sent"]


def short_of_what_others_sent(
    early: Wait,
    inside: Sequence[Wait],
    meeting: Step,
    views: Sequence[LedgerView],
    traffic: Traffic,
    *,
    listed: bool = False,
) -> tuple[int, ...]:
    """The one that has come to `meeting` with fewer messages than all others sent from one line before it, to where one
    still waits for it; nobody, if there is no such. It has sent some from there, or will: where all that it does is
    `listed`.
    """
    met = next((wait for wait in inside if wait.rank in early.missing), None)
    end = MessageEnd.of(early.rank, early.record)
    if met is None or end is None or end.sends or end.site is None:
        return ()
    sent: dict[tuple[Site, int], int] = {}
    for rank, ends in traffic.ends.items():
        since = max((each.index for each in _calls_before(meeting, views[rank])), default=-1)
        for each in ends:
            there = each.sends and each.site is not None and each.record.index > since
            if there and each.site is not None and _is_received_at(end.site, each, traffic):
                sent[each.site, rank] = sent.get((each.site, rank), 0) + 1
    others = {(site, rank): count for (site, rank), count in sent.items() if rank != met.rank}
    if len({site for site, _ in others}) != 1 or len(set(others.values())) != 1:
        return ()
    ((site, _), count), *_ = others.items()
    own = sent.get((site, met.rank), 0)
    return (met.rank,) if own < count and (own or listed) else ()


def has_left_its_loop(wait: Wait, traffic: Traffic) -> bool:
    """Whether the collective that it is in lies behind all that it has sent, and no loop brings it there again."""
    here = wait.record.step.site
    sites = {each.site for each in traffic.ends.get(wait.rank, ()) if each.sends}
    pairs = [from_one_function(site, here) for site in sites if site is not None and here is not None]
    return bool(pairs) and all(order_of(*pair) is Order.AFTER and not come_round(*pair) for pair in pairs)


def _calls_before(meeting: Step, view: LedgerView) -> Iterator[Record]:
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        step = record.step
        if step.target == meeting.target and NO_SEQUENCE < step.sequence < meeting.sequence:
            yield record


def _is_received_at(site: Site, sent: MessageEnd, traffic: Traffic) -> bool:
    """Whether it was received there, or will be, as all from that rank that was."""
    received = [each for each in traffic.ends.get(sent.peer, ()) if not each.sends and each.peer == sent.rank]
    this = [each for each in received if (each.stream, each.number) == (sent.stream, sent.number)]
    return bool(received) and all(each.site == site for each in this or received)
