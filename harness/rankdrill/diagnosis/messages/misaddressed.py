"""A send and a receive that were meant for each other and never met: they name another tag, group or peer.

Which of the two is wrong the other messages tell, where these follow a pattern: all with one tag, say, or with tags
that count them, all to the next rank, all to the same. Failing that, which of the two is usual, and which is new; or
which rank has left its rhythm; or who has gone to one of two peers more often than to the other, though these have come
equally often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias

from rankdrill.diagnosis.calls.common_caller import from_one_function, in_any_loop
from rankdrill.diagnosis.calls.either_way import goes_either_way
from rankdrill.diagnosis.calls.loops import is_in_a_loop, share_a_loop
from rankdrill.diagnosis.calls.source import Order, comes_later, functions_calling, order_of
from rankdrill.diagnosis.calls.tree import function_around
from rankdrill.diagnosis.messages.by_turns import are_by_turns
from rankdrill.diagnosis.messages.habits import departure
from rankdrill.diagnosis.messages.odd_tags import odd_by_its_place, odd_by_others_there
from rankdrill.diagnosis.messages.tags import PATTERN, against
from rankdrill.diagnosis.messages.traffic import RECEIVING, SENDING, MessageEnd, Stream, Traffic
from rankdrill.site import outward
from rankdrill.step import BATCH, Site

__all__ = [
    "Misaddressed",
    "Standing",
    "in_another_branch",
    "may_be_for_another",
    "meant_for",
    "misaddressed",
    "never_met",
]

_Way: TypeAlias = Callable[[Stream], Hashable]
_FROM_A_RANK: tuple[_Way, ...] = (lambda stream: stream.tag - stream.source, lambda stream: stream.tag - stream.target)
HABIT = 2  # messages that met before: enough of them to say which of two was usual


@dataclass(frozen=True)
class Misaddressed:
    """Two ends that name another `argument`: ``tag``, ``group`` or ``peer``; `odd` is the wrong one, if it is known."""

    ends: tuple[MessageEnd, MessageEnd]
    argument: str
    odd: MessageEnd | None


@dataclass(frozen=True)
class Standing:
    """Where ranks are: those that have `returned` have done all that they were to do, those `at` a site wait there."""

    returned: Collection[int]
    at: Mapping[int, Site | None]

    def keeps_away_from(self, end: MessageEnd) -> bool:
        """Whether the peer of `end` will not come to the other half of it; by the source, where it waits."""
        if end.peer in self.returned or end.peer not in self.at:
            return end.peer in self.returned
        known = {each.function for site in self.at.values() if site is not None for each in outward(site)}
        return not _may_come(end, self.at[end.peer], known)


def misaddressed(
    end: MessageEnd,
    left_over: Sequence[MessageEnd],
    traffic: Traffic,
    stands: Standing,
    *,
    guess: bool = False,
    peers: bool = True,
) -> Misaddressed | None:
    """What of `left_over` was meant for `end`, which met nothing; None where nothing was.

    Without `peers` only what names the same two ranks.

    Ends that name other peers are told only if the pattern does, or for a `guess` if nothing else is left over: each
    may as well lack an end of its own. Then it is the one whose peer is another that is odd: that alone explains both.
    """
    talking = {rank for rank, ends in traffic.ends.items() if ends}
    for argument, other in _candidates(end, left_over):
        usual = [_usual(each, argument, traffic) for each in (end, other)]
        if argument == "peer" and not peers:
            break  # they come last
        if argument == "peer" and are_by_turns(end, other, traffic):
            continue
        if argument == "peer":
            odd = _odd_by_pattern(end, other, traffic) or _odd_at_its_line(end, other, traffic)
            odd = odd or _odd_by_balance(end, other, traffic)
            odd = odd or _odd_by_both_ends(end, other, left_over, stands)
            if odd is None and len(left_over) == len({end, other}):
                odd = _odd_by_twins(end, other, traffic, stands.returned)
            alone = len(left_over) == len({end, other}) and not (_may_be_next(end, other) or _may_be_next(other, end))
            if odd is None and guess and alone and not all(usual):
                odd = _of_both_addresses(end, other)
            certain = odd is not None
        else:
            # What its own line says of a tag is more than that others have had that tag, too: they may all be counted.
            odd = odd_by_its_place(end, other, traffic) if argument == "tag" else None
            odd = odd or _odd_by_vote(end, other, argument, traffic) or _odd_by_habit(end, other, usual)
            odd = odd or (odd_by_others_there(end, other, traffic) if argument == "tag" else None)
            certain = odd is not None or not all(usual) or _miss_each_other(end, other, traffic)
            odd = odd or _odd_by_rhythm(end, other, traffic)
        if argument == "tag" and talking <= {end.rank, other.rank}:
            odd = None  # one against one
        if certain:
            return Misaddressed((end, other), argument, odd)
    return None


def in_another_branch(
    ends: Sequence[MessageEnd], traffic: Traffic, missing: Mapping[int, Collection[int]]
) -> Misaddressed | None:
    """Of ranks that wait, the one end that is new where its rank used to meet another of `ends`, which waits for that.

    It comes from that very line, or from one in another branch: a run of the function that comes there does not come to
    the usual one as well, so that the order of the two is no explanation. `missing` are those whom each rank waits for.
    """
    found = [
        Misaddressed((end, other), argument, end)
        for end in ends
        for argument, other in _candidates(end, ends)
        if argument == "peer" and _of_both_addresses(end, other) is end and _replaces(end, other, traffic, missing)
        if not any(argument == "tag" for argument, _ in _candidates(end, ends))  # its peer has come, with another tag
    ]
    return found[0] if len(found) == 1 else None


def _replaces(end: MessageEnd, other: MessageEnd, traffic: Traffic, missing: Mapping[int, Collection[int]]) -> bool:
    """Whether `end` is where its rank used to meet what came from the line of `other`, and has never met anything.

    Where one line turns to one after the other once is not enough, unless its peer waits for it elsewhere.
    """
    (usual, *more) = traffic.sites_met(other) or {None}
    if usual is None or more or end.site is None or traffic.met(end.stream) or not traffic.met(other.stream):
        return False
    if usual.place == end.site.place:
        if goes_either_way(end.site):
            return False
        return traffic.met(other.stream) >= HABIT or end.rank in missing.get(end.peer, ())
    return order_of(usual, end.site) is Order.APART


def never_met(ends: Sequence[MessageEnd]) -> Misaddressed | None:
    """Of ranks that wait for each other in a circle the two `ends` that nobody would come to, were all others met.

    By the source: their peers have nothing of the kind behind them. One that names the other's address explains both.
    """
    at = {end.rank: end.site for end in ends}
    known = {each.function for end in ends if end.site is not None for each in outward(end.site)}
    lost = [end for end in ends if not _may_come(end, at.get(end.peer), known)]
    if len(lost) != 2:
        return None
    pairs = [(argument, other) for argument, other in _candidates(lost[0], lost) if argument == "peer"]
    if len(pairs) != 1:
        return None
    other = pairs[0][1]
    return Misaddressed((lost[0], other), "peer", _of_both_addresses(lost[0], other))


def _may_come(end: MessageEnd, site: Site | None, known: Collection[str]) -> bool:
    """Whether its peer, which is at `site`, may come to the other half of it; also where nobody can say.

    Functions that are `known` to lead to messages, and those of the same file that call what is wanted, do so too.
    """
    if site is None or in_any_loop(site):
        return True
    halves = {*(RECEIVING if end.sends else SENDING), BATCH}
    lines = list(outward(site))
    helpers = {name for file in {each.file for each in lines} for name in functions_calling(halves, file)}
    return any(function_around(each) is None or comes_later(halves | helpers | {*known}, each) for each in lines)


def may_be_for_another(end: MessageEnd, left_over: Sequence[MessageEnd], traffic: Traffic) -> bool:
    """Whether it may name the wrong peer: nobody goes as far as that, and with its peer the one other end would fit.

    Not where a loop of its rank comes to one peer after the other.
    """
    others = [stream for stream in traffic.streams if stream != end.stream and stream.group == end.stream.group]
    if traffic.met(end.stream) or _offset(end.stream, traffic) in {_offset(stream, traffic) for stream in others}:
        return False
    return any(
        argument == "peer" and len(left_over) == len({end, other}) and _of_both_addresses(end, other) is end
        for argument, other in _candidates(end, left_over)
        if not _may_be_next(other, end)
    )


def _may_be_next(other: MessageEnd, end: MessageEnd) -> bool:
    """Whether the rank of `end` may come to the other half of `other` in the next round of a loop that it is in."""
    return other.peer == end.rank and end.site is not None and in_any_loop(end.site)


def _offset(stream: Stream, traffic: Traffic) -> int:
    """By how many ranks it goes."""
    return (stream.target - stream.source) % len(traffic.ends)


def _usual(end: MessageEnd, argument: str, traffic: Traffic) -> int:
    """How many such messages met before: of the pair, or if it is about tags to that rank, or from it."""
    mine = end.stream
    if argument != "tag":
        return traffic.met(mine)
    alike = [stream for stream in traffic.streams if (stream.group, stream.tag) == (mine.group, mine.tag)]
    return sum(traffic.met(each) for each in alike if mine.source == each.source or mine.target == each.target)


def _candidates(end: MessageEnd, left_over: Sequence[MessageEnd]) -> Iterator[tuple[str, MessageEnd]]:
    """The ends of the other kind that differ in one argument; what differs least likely by intention first."""
    others = [other for other in left_over if other.sends is not end.sends and other.rank != end.rank]
    mine = end.stream
    for other in others:
        if other.stream._replace(tag=mine.tag) == mine:
            yield "tag", other
    for other in others:
        if other.stream._replace(group=mine.group) == mine:
            yield "group", other
    for other in others:
        theirs = other.stream
        if mine in (theirs._replace(target=mine.target), theirs._replace(source=mine.source)):
            yield "peer", other


def meant_for(end: MessageEnd, others: Sequence[MessageEnd]) -> Iterator[MessageEnd]:
    """Which of `others` it would meet if it named another peer; had they, they would not meet it."""
    for argument, other in _candidates(end, others):
        if argument == "peer" and _of_both_addresses(end, other) is end:
            yield other


def _miss_each_other(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> bool:
    """Whether both ranks are in these very calls, and are not used to both: then it would be their order."""
    known = traffic.met(end.stream) and traffic.met(other.stream)
    return end.peer == other.rank and end.record.state.open and other.record.state.open and not known


def _of_both_addresses(end: MessageEnd, other: MessageEnd) -> MessageEnd:
    """The one whose peer, had it named the other, would have met it; the other could not have been right alone."""
    sends = end.stream.source == other.stream.source
    return end if end.sends is sends else other


def _odd_by_vote(end: MessageEnd, other: MessageEnd, argument: str, traffic: Traffic) -> MessageEnd | None:
    """The one whose tag, or group, is that of no other rank, while the other's is that of all that have either.

    What goes to the same rank, or comes from the same, says more than all the rest. Tags may be counted from a rank:
    where all others' are, each names the number of its source, say, that is what tells. Where others fit one end as
    they are and the other one if counted so, nobody can say.
    """
    rest = {each.stream for rank, ends in traffic.ends.items() if rank not in (end.rank, other.rank) for each in ends}
    mine = end.stream
    beside = (
        {stream for stream in rest if stream.target == mine.target},
        {stream for stream in rest if stream.source == mine.source},
    )
    near = {odd for streams in beside if (odd := _voted(end, other, argument, streams, traffic)) is not None}
    if near:
        return near.pop() if len(near) == 1 else None
    return _voted(end, other, argument, rest, traffic)


def _voted(
    end: MessageEnd, other: MessageEnd, argument: str, streams: Collection[Stream], traffic: Traffic
) -> MessageEnd | None:
    as_it_is: _Way = attrgetter(argument)
    ways = (as_it_is, *(_FROM_A_RANK if argument == "tag" else ()))
    alike = [way for way in ways if len(set(map(way, streams))) == 1]
    if not alike:  # of several some are those of the two: of these only what has met says that it is right
        alike, streams = [as_it_is], [stream for stream in streams if traffic.met(stream)]
    odd = set()
    for way in alike:
        values: dict[Hashable, MessageEnd] = {way(each.stream): each for each in (end, other)}
        odd.add(against(values.keys() & set(map(way, streams)), values))
    odd.discard(None)
    return odd.pop() if len(odd) == 1 else None


def _odd_by_habit(end: MessageEnd, other: MessageEnd, usual: Sequence[int]) -> MessageEnd | None:
    """The one that is new where the other is not."""
    if all(usual) or max(usual) < HABIT:
        return None
    return other if usual[0] else end


def _odd_by_rhythm(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one of whom, after the same messages, the other one's address was usual."""
    left = departure((end, other), traffic)
    if left is None:
        return None
    meant = other if left.end is end else end
    return left.end if left.usual.stream == meant.stream else None


def _odd_by_balance(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one at the rank they share, where it alone has not treated both peers alike.

    A peer that had left one out, or done one more, would differ from the other peer itself. In a loop only what is
    done in that counts: one of them may have been turned to before.
    """
    odd = _of_both_addresses(end, other)
    streams = (end.stream, other.stream)
    theirs = [traffic.received(each) if odd.sends else traffic.sent(each) for each in streams]
    done = Counter(each.stream for each in traffic.ends[odd.rank] if each.sends is odd.sends and _beside(each, odd))
    own = [done[each] for each in streams]
    steady = len(set(theirs)) == 1 and min(own) >= HABIT
    return odd if steady and abs(own[0] - own[1]) == 2 else None


def _beside(end: MessageEnd, odd: MessageEnd) -> bool:
    """Whether it is done in the loop that `odd` is in, if that is in one."""
    if odd.site is None or end.site is None or not is_in_a_loop(odd.site):
        return True
    return share_a_loop(*from_one_function(end.site, odd.site))


def _odd_by_twins(end: MessageEnd, other: MessageEnd, traffic: Traffic, returned: Collection[int]) -> MessageEnd | None:
    """The one at the rank they share, where nobody can have left a message out: others did the same, and returned.

    Its own rank has done, line by line, all that another one did that has returned; and its peer, which would have left
    out the other half, what that rank did to which the other end belongs. Not in a loop: there lines tell no number.
    """
    odd = _of_both_addresses(end, other)
    met = other if odd is end else end
    if odd.peer not in returned or odd.site is None or in_any_loop(odd.site):
        return None
    done = {rank: Counter((each.sends, each.site) for each in traffic.ends.get(rank, ())) for rank in traffic.ends}
    twins = (rank for rank in returned if rank not in (odd.rank, odd.peer, met.rank))
    complete = any(done[rank] == done[odd.rank] for rank in twins)
    return odd if complete and done[odd.peer] == done[met.rank] else None


def _odd_by_both_ends(
    end: MessageEnd, other: MessageEnd, left_over: Sequence[MessageEnd], stands: Standing
) -> MessageEnd | None:
    """The one at the rank they share, where that explains both, and nothing but that does.

    Nobody will come to either: were its address right, both peers would have left something out. To all else that is
    left over somebody may still come, who is held up by these two.
    """
    nobody_comes = [each for each in left_over if stands.keeps_away_from(each)]
    if len(nobody_comes) != 2 or any(each not in nobody_comes for each in (end, other)):
        return None
    return _of_both_addresses(end, other)


def _odd_by_pattern(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one that goes another way than all other ranks' messages with this tag: by so many ranks, or to one."""
    mine, theirs = end.stream, other.stream
    shared = "source" if mine.source == theirs.source else "target"
    free = "target" if shared == "source" else "source"
    ways: tuple[_Way, ...] = (
        lambda stream: _offset(stream, traffic),
        lambda stream: getattr(stream, free),
    )
    by_others = (each.stream for rank, made in traffic.ends.items() if rank != getattr(mine, shared) for each in made)
    rest = [
        stream
        for stream in set(by_others)
        if (stream.group, stream.tag) == (mine.group, mine.tag)
        and getattr(stream, shared) != getattr(mine, shared)
        and stream not in (mine, theirs)
    ]
    if len(rest) < PATTERN or not any(map(traffic.met, rest)):  # where nothing met, nothing was right yet
        return None
    odd = {against({way(stream) for stream in rest}, {way(mine): end, way(theirs): other}) for way in ways} - {None}
    # No address that the other one could name would make them meet: that all send to one rank says nothing of who does
    # not, as in a tree.
    return odd.pop() if odd == {_of_both_addresses(end, other)} else None


def _odd_at_its_line(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one at the rank they share, where that of all ranks which came to its line with the same message of theirs,
    the third, say, goes by as many ranks as the other one's: as in one round of a tree.
    """
    odd = _of_both_addresses(end, other)
    met = other if odd is end else end
    place = _place(odd, traffic.ends[odd.rank])
    there = [
        made[place]
        for rank, made in traffic.ends.items()
        if rank != odd.rank and place < len(made) and (made[place].sends, made[place].site) == (odd.sends, odd.site)
    ]
    by = {(each.peer - each.rank) % len(traffic.ends) for each in there}
    agreed = len(there) >= PATTERN and any(traffic.met(each.stream) for each in there)
    return odd if agreed and odd.site is not None and by == {(met.rank - odd.rank) % len(traffic.ends)} else None


def _place(end: MessageEnd, made: Sequence[MessageEnd]) -> int:
    """Which of the messages of its rank it is."""
    return sum(each.record.index < end.record.index for each in made)
