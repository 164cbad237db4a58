"""A loop that is left by what comes with a message: a worker stops as it is told, and not before.

So who has left it has been told to; whoever told it, and then sends more, or waits for an answer, has lost count. And
who is left in it, where all others have been told from one line, has not been told.
"""

from __future__ import annotations

from rankdrill.diagnosis.calls.told import leaves_as_it_is_told
from rankdrill.diagnosis.messages.misaddressed import Standing
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.step import Site

__all__ = ["not_told_to_leave", "told_to_leave"]


def told_to_leave(end: MessageEnd, traffic: Traffic, stands: Standing) -> tuple[int, ...]:
    """The rank of `end`, where its peer will not come to the other half, since it left its loop as that rank told it.

    Only if nobody who was told so from that line has received more; or if what is left over came from another one, and
    all, or others beside its peer, have left by what came from there: else that may have taken it for the end.
    """
    exchanged = [each for each in traffic.ends.get(end.peer, ()) if each.peer == end.rank]
    if not exchanged or exchanged[-1].sends or not stands.keeps_away_from(end):
        return ()
    told = traffic.other_end(exchanged[-1])
    site = exchanged[-1].site
    if told is None or told.site is None or site is None or not leaves_as_it_is_told(site):
        return ()
    if _is_taken_elsewhere(end, site, traffic):
        return ()
    if _tells_the_end(told.site, end.rank, traffic):
        return (end.rank,)
    if end.site == told.site:
        return ()
    by_it = _left_by(told.site, site, end.peer, traffic, stands)
    all_left = _last_lines(site, end.peer, traffic, stands) == {told.site}
    return (end.rank,) if all_left or by_it else ()


def not_told_to_leave(end: MessageEnd, traffic: Traffic, stands: Standing) -> tuple[int, ...]:
    """The peer of `end`, which waits for one more message in a loop that it leaves as it is told, where all others that
    were in that loop have been told to leave it from one line, and it never was.
    """
    if end.sends or end.site is None or not end.record.state.open or not leaves_as_it_is_told(end.site):
        return ()
    if not stands.keeps_away_from(end):
        return ()
    lines = _last_lines(end.site, end.rank, traffic, stands)
    if len(lines) != 1:
        return ()
    line = lines.pop()
    if line is None or not _tells_the_end(line, end.peer, traffic):
        return ()
    own = [each for each in traffic.ends[end.peer] if each.sends and each.peer == end.rank]
    if not own or own[-1].site is None or _tells_the_end(own[-1].site, end.peer, traffic):
        return ()  # it may have been told, and does not listen
    return () if any(each.site == line for each in own) else (end.peer,)


def _is_taken_elsewhere(end: MessageEnd, site: Site, traffic: Traffic) -> bool:
    """Whether others have met what comes from its line, and not in the loop at `site`: it is for who has left that."""
    met = (traffic.other_end(each) for each in traffic.ends[end.rank] if each.site == end.site)
    return any(each is not None and each.site != site for each in met)


def _left_by(told: Site, site: Site, but: int, traffic: Traffic, stands: Standing) -> bool:
    """Whether others, too, have left the loop at `site` by what came from the line that `told` them so."""
    gone = (each for each in _last_taken(site, but, traffic) if stands.at.get(each.rank) != site)
    met = map(traffic.other_end, gone)
    return any(each is not None and each.site == told for each in met)


def _last_lines(site: Site, but: int, traffic: Traffic, stands: Standing) -> set[Site | None]:
    """Where the last messages came from that others than rank `but` got at `site`; nothing if one is there still."""
    last = _last_taken(site, but, traffic)
    if any(stands.at.get(each.rank) == site for each in last):
        return set()
    met = [traffic.other_end(each) for each in last]
    return {each.site if each is not None else None for each in met}


def _last_taken(site: Site, but: int, traffic: Traffic) -> list[MessageEnd]:
    """The last that each other rank than `but` has received at `site`."""
    taken = (
        [each for each in ends if not each.sends and each.site == site]
        for rank, ends in traffic.ends.items()
        if rank != but
    )
    return [each[-1] for each in taken if each]


def _tells_the_end(line: Site, rank: int, traffic: Traffic) -> bool:
    """Whether nobody has received more from `rank` after what came from that line."""
    sent = [each for each in traffic.ends[rank] if each.sends and each.site == line]
    return all(traffic.met(each.stream) <= each.number + 1 for each in sent)
