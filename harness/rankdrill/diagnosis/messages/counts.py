"""One message too few, or one too many: who of its two ranks has lost count, as other messages tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, pairwise

from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function, in_any_loop
from rankdrill.diagnosis.calls.conditions import goes_as_far_as_the_rank_says, may_be_left_out, takes_turns_by_rank
from rankdrill.diagnosis.calls.loops import is_in_a_loop
from rankdrill.diagnosis.calls.source import lines_behind
from rankdrill.diagnosis.calls.told import leaves_as_it_is_told
from rankdrill.diagnosis.messages.misaddressed import may_be_for_another
from rankdrill.diagnosis.messages.traffic import SEND_CALLS, MessageEnd, Stream, Traffic
from rankdrill.diagnosis.waits import Wait
from rankdrill.site import outward
from rankdrill.step import BATCH

__all__ = [
    "beyond_the_border",
    "by_those_beside",
    "left_its_line",
    "left_out_at_the_end",
    "miscounted",
    "once_at_its_line",
    "out_of_step",
]

FEWEST_IN_A_ROW = 3


def miscounted(end: MessageEnd, traffic: Traffic, left_over: Sequence[MessageEnd]) -> tuple[int, ...]:
    """Who of the two has done one too few, or one too many, if all others' messages with this tag are as many.

    Both where that is not known of either; nobody where counts tell nothing. Streams that have ends `left_over`
    themselves are undecided; but who waits there for as many, on the line of `end`, says that there are to be so many.
    """
    undecided = {each.stream for each in left_over}
    decided = [
        stream
        for stream in traffic.streams
        if (stream.group, stream.tag) == (end.stream.group, end.stream.tag) and stream not in undecided
    ]
    counts = {traffic.met(stream) for stream in decided}
    if len(counts) > 1:  # some go there, say, and some back: those from its own line tell
        alike = [stream for stream in decided if _comes_from_its_line(stream, end, traffic)]
        decided, counts = (alike, {traffic.met(stream) for stream in alike}) if len(alike) > 1 else (decided, counts)
    as_many = any(_expects_as_many(each, end, traffic) for each in left_over)
    waiting = {each.rank for each in left_over if each.record.state.open}
    held_up = all(stream.source in waiting for stream in decided)  # they may have been to send more
    if as_many and held_up and not _sends_elsewhere(end, traffic):
        return (end.peer,)
    if counts != {end.number + 1} and _others_get_as_many(end, decided, left_over, traffic):
        return (end.peer,)
    if not decided and not as_many and _is_beyond_all_others(end, traffic, undecided):
        return (end.rank,)
    if counts == {end.number + 1}:
        if may_be_for_another(end, left_over, traffic) or _is_one_of_two(end, decided, traffic):
            return (end.rank, end.peer)
        if any(site is not None and takes_turns_by_rank(site) for site in traffic.sites_met(end)):
            return (end.rank, end.peer)
        # What its peer has taken before it takes from there.
        start = _handed_on_from(end, traffic) if not traffic.met(end.stream) else None
        if start is None:
            return (end.rank, end.peer) if _closes_a_ring(end, decided, traffic) else (end.peer,)
        return (end.rank,) if start.site == end.site else (end.rank, end.peer)
    if counts != {end.number} or as_many:
        return () if as_many else _by_the_star(end, decided, traffic)
    between_two = all({stream.source, stream.target} == {end.rank, end.peer} for stream in decided)
    if (between_two and _begins_a_round(end, traffic)) or not any(_goes_round(each, end, traffic) for each in decided):
        return end.rank, end.peer
    if end.site is not None and takes_turns_by_rank(end.site):
        return end.rank, end.peer
    return (end.rank,)


def _comes_from_its_line(stream: Stream, end: MessageEnd, traffic: Traffic) -> bool:
    made = traffic.ends.get(stream.source if end.sends else stream.target, ())
    return any(each.stream == stream and each.sends is end.sends and each.site == end.site for each in made)


def _goes_round(stream: Stream, end: MessageEnd, traffic: Traffic) -> bool:
    """Whether it is of the loop that `end` goes round in: what was sent before that once says nothing of how often."""
    if end.site is None or not in_any_loop(end.site):
        return True
    made = [
        each for rank in (stream.source, stream.target) for each in traffic.ends.get(rank, ()) if each.stream == stream
    ]
    return any(each.site is None or come_round(*from_one_function(each.site, end.site)) for each in made)


def beyond_the_border(end: MessageEnd, traffic: Traffic, left_over: Sequence[MessageEnd]) -> tuple[int, ...]:
    """Who sends to, and receives from, one that exchanges with others at that line, and not with it: in a halo, say,
    of which one rank takes the row of ranks for a ring. Nobody where that is not so.

    Where the two are neighbours as all the others are, it is the one that leaves its neighbour out.
    """
    both = [each for each in left_over if {each.rank, each.peer} == {end.rank, end.peer}]
    alone = len(both) == 2 and {each.sends for each in both} == {True, False} and len({each.rank for each in both}) == 1
    if not alone or end.site is None or end.site.via != BATCH or traffic.met(end.stream):
        return ()
    ends = traffic.ends.get(end.peer, ())
    there = [each for each in ends if each.site is not None and each.site.place == end.site.place]
    if not there or any(each.peer == end.rank for each in there):
        return ()
    return (end.peer,) if _is_missing_in_a_row(end, traffic) else (end.rank,)


def _is_missing_in_a_row(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether at its line all ranks but these two exchange with those beside them, and with nobody else; but that the
    last may be beside the first.
    """
    here = end.site.place if end.site is not None else None
    links = {
        frozenset((each.rank, each.peer))
        for ends in traffic.ends.values()
        for each in ends
        if each.site is not None and each.site.place == here and traffic.met(each.stream)
    }
    ranks, mine = sorted(traffic.ends), frozenset((end.rank, end.peer))
    row = {frozenset(pair) for pair in pairwise(ranks)}
    ring = row | {frozenset((ranks[0], ranks[-1]))}
    between = any(one & other for one, other in combinations(links, 2))  # else they may be pairs
    return between and mine in row and links in (row - {mine}, ring - {mine})


def once_at_its_line(end: MessageEnd, traffic: Traffic, left_over: Sequence[MessageEnd]) -> tuple[int, ...]:
    """Who has turned to the other once, at a line at which both have done the same round by round, each with others, or
    at which it has never been else, and all others have in each round.
    """
    between = [each for each in left_over if {each.rank, each.peer} == {end.rank, end.peer}]
    if end.site is None or end.number or len(between) != 1:
        return ()
    there = {rank: _made_at(end.site.place, rank, traffic) for rank in traffic.ends}
    mine, theirs = there.pop(end.rank, Counter()), there.get(end.peer, Counter())
    del mine[end.sends, end.stream]
    beside = (
        [*mine.values(), *theirs.values()] if mine else [count for made in there.values() for count in made.values()]
    )
    met_there = any(end.rank in (stream.source, stream.target) for _, stream in theirs)
    known = bool(mine) or (len(there) > 1 and all(there.values()))
    return (end.rank,) if known and theirs and not met_there and len({*beside}) == 1 and beside[0] > 1 else ()


def _made_at(place: tuple[str, int], rank: int, traffic: Traffic) -> Counter[tuple[bool, Stream]]:
    """How often a rank has made each of its ends there."""
    made = (each for each in traffic.ends[rank] if each.site is not None and each.site.place == place)
    return Counter((each.sends, each.stream) for each in made)


def by_those_beside(end: MessageEnd, traffic: Traffic) -> tuple[int, ...]:
    """Its peer, where several others have done the other half for that rank once more than it, and all as often; or one
    other has, at the line that the peer may go past in a round.

    Only where the two have met before: else it may not be among those that are to do so at all.
    """
    if not traffic.met(end.stream) or (end.sends and _goes_by_who_asks(end.rank, traffic)):
        return ()
    mine, peer = ("source", "target") if end.sends else ("target", "source")
    done = {
        getattr(stream, peer): traffic.received(stream) if end.sends else traffic.sent(stream)
        for stream in traffic.streams
        if (stream.group, stream.tag) == (end.stream.group, end.stream.tag)
        and getattr(stream, mine) == end.rank
        and getattr(stream, peer) != end.peer
    }
    if set(done.values()) != {end.number + 1}:
        return ()
    return (end.peer,) if len(done) > 1 or _may_have_gone_past(end, *done, traffic=traffic) else ()


def _may_have_gone_past(end: MessageEnd, other: int, *, traffic: Traffic) -> bool:
    """Whether its peer, and the `other` rank, have done their half at one line alone, in a loop of as many rounds for
    all, and something in a round leads past it.
    """
    at = {
        each.site
        for rank in (end.peer, other)
        for each in traffic.ends.get(rank, ())
        if each.peer == end.rank and each.sends is not end.sends
    }
    site = at.pop() if len(at) == 1 else None
    if site is None or not is_in_a_loop(site):
        return False
    return may_be_left_out(site) and not goes_as_far_as_the_rank_says(site)


def left_out_at_the_end(end: MessageEnd, traffic: Traffic, returned: Collection[int]) -> tuple[int, ...]:
    """Its peer, where that has returned, and has sent once more to all others that it had sent to before, at its last
    line, after which they return: a word that ends their work, which this one never got.
    """
    if end.sends or end.peer not in returned or end.rank in returned or not traffic.met(end.stream):
        return ()
    sent = [each for each in traffic.ends.get(end.peer, ()) if each.sends and each.stream.tag == end.stream.tag]
    last = sent[-1].site if sent else None
    told = Counter(each.peer for each in sent if each.site == last)
    before = {each.peer for each in sent if each.site != last}
    newest = {each.peer: each.site for each in sent}
    all_but_one = before == {*told, end.rank} and end.rank not in told and len(told) > 1
    once = set(told.values()) == {1} and all(newest[rank] == last for rank in told) and set(told) <= set(returned)
    return (end.peer,) if last is not None and all_but_one and once else ()


def left_its_line(end: MessageEnd, traffic: Traffic, returned: Collection[int]) -> tuple[int, ...]:
    """Its peer, where that has returned, and several others that took from the same rank at its line, the last time it
    did, are there once more.
    """
    if not end.sends or end.peer not in returned or not traffic.met(end.stream):
        return ()
    if _goes_by_who_asks(end.rank, traffic):
        return ()
    lines: dict[int, list[MessageEnd]] = {
        rank: [each for each in ends if not each.sends and each.peer == end.rank] for rank, ends in traffic.ends.items()
    }
    there = lines[end.peer][-1].site if lines.get(end.peer) else None
    if there is None or leaves_as_it_is_told(there):
        return ()
    beside = [each for rank, each in lines.items() if rank != end.peer and each]
    open_ends = [each[-1] for each in beside]
    again = [each for each in open_ends if each.record.state.open and each.site == there]
    ahead = all(traffic.received(each.stream) > end.number for each in again)
    return (end.peer,) if ahead and len(again) == len(open_ends) > 1 else ()


def _goes_by_who_asks(rank: int, traffic: Traffic) -> bool:
    """Whether it takes from anybody, too: how many it then sends to each is chance."""
    return any(not each.sends and each.record.step.is_from_anybody for each in traffic.ends.get(rank, ()))


def _by_the_star(end: MessageEnd, decided: Sequence[Stream], traffic: Traffic) -> tuple[int, ...]:
    """The same where only those tell that take from the same rank, or send to it: of a master say all its workers."""
    source, target = end.stream.source, end.stream.target
    beside = [each for each in decided if (each.target == target if end.sends else each.source == source)]
    counts = {traffic.met(each) for each in beside}
    if len(beside) < 2 or len(counts) > 1:
        return ()
    (count,) = counts
    return (end.rank,) if count == end.number else (end.peer,) if count > end.number else ()


def _is_one_of_two(end: MessageEnd, decided: Sequence[Stream], traffic: Traffic) -> bool:
    """Whether it was sent from a line that sends to one other rank alone: which of the two does as it should?"""
    own = (each for each in traffic.ends.get(end.rank, ()) if each.sends and each.site == end.site)
    return end.sends and len(decided) == 1 and any(each.stream == decided[0] for each in own)


def _others_get_as_many(
    end: MessageEnd, decided: Collection[Stream], left_over: Sequence[MessageEnd], traffic: Traffic
) -> bool:
    """Whether all others that its rank sends to have got as many, and one waits for the last of as many: a worker, say,
    whose turn it is when this one has had its own.
    """
    if not end.sends:
        return False
    got = {traffic.met(stream) for stream in decided if stream.source == end.rank}
    waiting = (each for each in left_over if not each.sends and each.peer == end.rank and each.rank != end.peer)
    return got == {end.number + 1} and any(each.number == end.number and each.record.state.open for each in waiting)


def _is_beyond_all_others(end: MessageEnd, traffic: Traffic, undecided: Collection[Stream]) -> bool:
    """Whether all others have sent each other what these two have, tag by tag, and nobody anything with its tag."""
    links: dict[tuple[int, int], list[int]] = {}
    for made in traffic.ends.values():
        for each in made:
            if each.stream.group == end.stream.group and each.sends is end.sends and each.stream not in undecided:
                links.setdefault((each.stream.source, each.stream.target), []).append(each.stream.tag)
    mine = links.pop((end.stream.source, end.stream.target), [])
    apart = [tags for pair, tags in links.items() if set(pair) != {end.rank, end.peer}]
    return bool(mine and apart) and all(tags == mine for tags in links.values())


def _closes_a_ring(end: MessageEnd, decided: Collection[Stream], traffic: Traffic) -> bool:
    """Whether all others go on by one rank like it, from the first to the last, and it goes from there to the first.

    What was meant for a row has gone round, or what was meant for a ring has stopped; nobody can say, unless the two
    have met before, or the other way round.
    """
    ranks = sorted({rank for stream in decided for rank in (stream.source, stream.target)})
    if len(ranks) < FEWEST_IN_A_ROW or {end.rank, end.peer} != {ranks[0], ranks[-1]}:
        return False
    row = ranks if end.stream.target == ranks[0] else ranks[::-1]
    links = {(stream.source, stream.target) for stream in decided}
    back = end.stream._replace(source=end.stream.target, target=end.stream.source)
    return set(pairwise(row)) <= links and not traffic.met(back) and not traffic.met(end.stream)


def _begins_a_round(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether its rank comes from the same line as before: who of two has done a round more, or less, nobody knows."""
    before = [each for each in traffic.ends.get(end.rank, ()) if each.record.index < end.record.index]
    return end.record.state.open and any(
        each.site == end.site and each.stream == end.stream and each.sends is end.sends for each in before
    )


def _expects_as_many(other: MessageEnd, end: MessageEnd, traffic: Traffic) -> bool:
    """Whether both are receives, one for what the other rank is to hand on: of that number, on one line, in a loop, or
    for what the rank of `end` is to hand on itself.
    """
    again = end.number > 0 or all(_came_there_before(each, traffic) for each in (end, other))
    return (
        not end.sends
        and not other.sends
        and other.rank not in (end.rank, end.peer)
        and other.peer != end.peer
        and other.number == end.number
        and again
        and (other.stream.group, other.stream.tag) == (end.stream.group, end.stream.tag)
        and other.site is not None
        and (other.site == end.site or (other.peer == end.rank and end.number > 0))
    )


def _came_there_before(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether its rank has received from that line before, under another tag, it may be."""
    made = traffic.ends.get(end.rank, ())
    return any(not each.sends and each.site == end.site and each.record.index < end.record.index for each in made)


def _sends_elsewhere(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether behind `end` its rank may send from a line that it has not sent from yet: others may wait for that."""
    own = (each.site for each in traffic.ends.get(end.rank, ()) if each.sends and each.site is not None)
    known = {at.place for site in own for at in outward(site)}
    return any(
        (at.file, line) not in known
        for at in (outward(end.site) if end.site is not None else ())
        for line in lines_behind(SEND_CALLS, at)
    )


def _handed_on_from(end: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """What its peer has sent, if `end` hands that on, all the way round: each received it before it sent.

    A peer that had received first, as all others did, would have waited for its own message. Its part is to begin,
    and what comes back to it nobody ordered: the last one of a pipeline has no next stage.
    """
    if not end.sends:
        return None
    passed = end
    for _ in traffic.ends:
        received = _newest_before(passed, traffic)
        if received is None:
            return None
        passed = received
        if passed.rank == end.peer:
            return passed
    return None


def _newest_before(sent: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """Where what a rank sends came from: the other end of the one message that it had received in that round before."""
    received = [
        each
        for each in traffic.ends.get(sent.rank, ())
        if not each.sends
        and 0 < each.record.end_ns <= sent.record.begin_ns
        and (each.stream.group, each.stream.tag, each.number) == (sent.stream.group, sent.stream.tag, sent.number)
    ]
    if len(received) != 1:
        return None
    source = received[0].stream.source
    ends = (each for each in traffic.ends.get(source, ()) if each.sends and each.stream == received[0].stream)
    return next((each for each in ends if each.number == sent.number), None)


def out_of_step(end: MessageEnd, waits: Mapping[int, Wait], traffic: Traffic) -> tuple[int, ...]:
    """Who of the two has done another number of its ends since the last collective than in the round before that.

    Of use where the other rank waits in the next collective already.
    """
    wait = waits.get(end.peer)
    mine, theirs = traffic.rounds.get(end.rank, 0), traffic.rounds.get(end.peer, 0) - 1
    if wait is None or wait.record.step.message is not None or min(mine, theirs) < 1:
        return ()
    if end.rank not in wait.missing:  # it has been there: the other is not ahead, but behind
        return ()

    # A tag that counts the rounds is a new one in each.
    any_tag = not traffic.in_round(end.rank, mine - 1, sends=end.sends, stream=end.stream)

    def change(rank: int, number: int, *, sends: bool) -> int:
        now, before = (
            traffic.in_round(rank, each, sends=sends, stream=end.stream, any_tag=any_tag)
            for each in (number, number - 1)
        )
        return now - before

    if mine == 1 and not traffic.in_round(end.rank, 0, sends=end.sends, stream=end.stream, any_tag=any_tag):
        return ()  # what came before the first collective was no such round
    own, others = change(end.rank, mine, sends=end.sends), change(end.peer, theirs, sends=not end.sends)
    more, less = own > 0, others < 0
    if more is less or (own > 0 and others > 0):  # of the first such round, say, neither had one before
        return ()
    return (end.rank,) if more else (end.peer,)
