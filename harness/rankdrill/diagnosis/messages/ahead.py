"""Ranks that wait for each other's messages in a circle, where one of them did not do as the others do at their lines.

A pipeline without one of its messages ends in such a circle: one stage is at the way back already, and the next still
waits for what the way there owes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.conditions import goes_as_far_as_the_rank_says
from rankdrill.diagnosis.calls.either_way import goes_either_way
from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.messages.by_turns import are_by_turns
from rankdrill.diagnosis.messages.misaddressed import Misaddressed, meant_for
from rankdrill.diagnosis.messages.tags import PATTERN
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["further_down", "not_as_all_there", "turned_to_another"]


def further_down(ends: Sequence[MessageEnd], traffic: Traffic) -> tuple[MessageEnd, int] | None:
    """Of the `ends` of a circle the one whose peer is further down the program than it, and who of the two is at fault.

    As many messages as others exchanged by that line were to be: either the peer has left one out, or here is one too
    many. None where several are so far apart, nobody else was at that line, or the peer has still to come to where
    others do the other half; nor where each rank has a number of its own.
    """
    at = {end.rank: end.site for end in ends}
    behind = [end for end in ends if _has_gone_on(at.get(end.peer), end.site)]
    if len(behind) != 1:
        return None
    (end,) = behind
    if end.site is None or any(map(goes_as_far_as_the_rank_says, outward(end.site))):
        return None
    due = _due(end, traffic)
    if due is None or end.number >= due:
        return None if due is None else (end, end.rank)
    met = traffic.sites_met(end)
    past = bool(met) and all(_has_gone_on(at[end.peer], site) for site in met)
    return (end, end.peer) if past else None


def turned_to_another(
    ends: Sequence[MessageEnd], waiting: Sequence[MessageEnd], traffic: Traffic
) -> Misaddressed | None:
    """The one end of a circle that would meet one of those `waiting`, had its rank gone by as many ranks as all have
    from its line.
    """
    found = [
        Misaddressed((end, other), "peer", end)
        for end in ends
        for other in meant_for(end, waiting)
        if _goes_so_far(end, other.rank, traffic) and not (end.site is not None and goes_either_way(end.site))
    ]
    return found[0] if len(found) == 1 else None


def not_as_all_there(
    ends: Sequence[MessageEnd], waiting: Sequence[MessageEnd], traffic: Traffic
) -> Misaddressed | None:
    """The one end of a circle that goes to another rank than all others did from its line, several and to one rank,
    which waits for it in one of those `waiting`; or to one for the second time, where that has left out one that waits;
    or by more ranks than all that wait at the line of that one wait for.
    """
    found = [
        Misaddressed((end, other), "peer", end)
        for end in ends
        for other in meant_for(end, waiting)
        if not are_by_turns(end, other, traffic)
        and (
            _all_go_to(end, other.rank, traffic)
            or _is_one_more_instead(end, other, traffic)
            or _all_wait_so(end, other, traffic)
        )
    ]
    return found[0] if len(found) == 1 else None


def _all_go_to(end: MessageEnd, rank: int, traffic: Traffic) -> bool:
    """Whether all other ranks have gone to `rank` from that line, and several have."""
    there = [each for each in _of_others(end, traffic) if each.site == end.site and each.rank != rank]
    return end.site is not None and {each.peer for each in there} == {rank} and len({e.rank for e in there}) >= PATTERN


def _all_wait_so(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> bool:
    """Whether all that have come to the line of `other`, several, wait for one as many ranks away, and nobody but the
    rank of `end` has come to its line.
    """
    size = len(traffic.ends)
    alone = not any(each.site == end.site for each in _of_others(end, traffic))
    there = [
        each for made in traffic.ends.values() for each in made if each.site == other.site and each.sends is other.sends
    ]
    ways = {(each.peer - each.rank) % size for each in there}
    return alone and end.site is not None and len({each.rank for each in there}) >= PATTERN and len(ways) == 1


def _is_one_more_instead(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> bool:
    """Whether its rank has sent once more to its peer, and once less to who waits in `other`, than to all others."""
    if not end.sends or end.number != other.number + 1:
        return False
    beside = [stream for stream in traffic.streams if stream.source == end.rank and stream.tag == end.stream.tag]
    rest = [stream for stream in beside if stream not in (end.stream, other.stream)]
    return bool(rest) and all(traffic.met(stream) == traffic.sent(stream) == end.number for stream in rest)


def _has_gone_on(there: Site | None, here: Site | None) -> bool:
    """Whether `there` lies behind `here`, and no loop leads back."""
    if there is None or here is None:
        return False
    at_here, at_there = from_one_function(here, there)
    return order_of(at_here, at_there) is Order.AFTER and not share_a_loop(at_here, at_there)


def _due(end: MessageEnd, traffic: Traffic) -> int | None:
    """How many messages such an end was to have, by those of others from its line, or from its rank's lines before."""
    before = {each.site for each in traffic.ends.get(end.rank, ()) if _is_beside(each, end) and each.peer == end.peer}
    for sites in ({end.site}, before):
        decided = list(_decided(end, sites, traffic))
        if decided:
            counts = {traffic.met(each.stream) for each in decided}
            return counts.pop() if len(counts) == 1 and _goes_their_way(end, decided) else None
    expect_as_many = any(
        each.site == end.site and each.number == end.number and each.record.state.open and each.peer != end.peer
        for each in _of_others(end, traffic)
    )
    return end.number + 1 if expect_as_many else None


def _goes_their_way(end: MessageEnd, others: Sequence[MessageEnd]) -> bool:
    """Whether it goes by as many ranks as one of the others, or to whom all of several go."""
    peers = {each.peer for each in others}
    to_one = peers == {end.peer} and len({each.stream for each in others}) >= PATTERN
    return to_one or any(each.peer - each.rank == end.peer - end.rank for each in others)


def _decided(end: MessageEnd, sites: Collection[Site | None], traffic: Traffic) -> Iterator[MessageEnd]:
    """The ends of others from those lines whose streams lack nothing."""
    undecided = {each.stream for each in traffic.left_over()}
    for each in _of_others(end, traffic):
        if each.site in sites and each.stream not in undecided:
            yield each


def _of_others(end: MessageEnd, traffic: Traffic) -> Iterator[MessageEnd]:
    for rank, made in traffic.ends.items():
        yield from (each for each in made if rank != end.rank and _is_beside(each, end))


def _is_beside(each: MessageEnd, end: MessageEnd) -> bool:
    mine, theirs = end.stream, each.stream
    return each.sends is end.sends and (theirs.group, theirs.tag) == (mine.group, mine.tag)


def _goes_so_far(end: MessageEnd, rank: int, traffic: Traffic) -> bool:
    """Whether all that met at its line goes by as many ranks as it would to `rank`: of one stream it may be chance."""
    size = len(traffic.ends)
    met = {
        each.stream: (each.peer - each.rank) % size
        for made in traffic.ends.values()
        for each in made
        if _is_beside(each, end) and each.site == end.site and traffic.met(each.stream) > each.number
    }
    return end.site is not None and len(met) >= PATTERN and set(met.values()) == {(rank - end.rank) % size}
