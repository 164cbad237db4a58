"""Two ends of one message that name two tags: which of them is wrong, where the tags of others follow a law.

A tag may be the next of its line, the number of its message between two ranks, or go up with the rank that sends or
receives it, by one or by a hundred.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Set
from itertools import pairwise
from operator import attrgetter

from rankdrill.diagnosis.messages.traffic import MessageEnd, Stream, Traffic

__all__ = [
    "PATTERN",
    "against",
    "odd_by_line",
    "odd_by_range",
    "odd_by_slope",
    "odd_by_steps",
    "odd_by_turn",
    "odd_by_way",
]

PATTERN = 2  # other streams, of which one alone goes its way by chance
COUNTED = 3  # messages of two ranks with a tag each, of which fewer may have these tags by chance


def odd_by_turn(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one whose tag is not its turn, where tags count the messages from each rank to each, and all others' do.

    Those of the two alone say so if they have counted for longer.
    """
    made = [each for ends in traffic.ends.values() for each in ends if each not in (end, other)]
    rest = [each for each in made if each.stream.group == end.stream.group]
    by_others = {each.stream.tag for each in rest if each.rank not in (end.rank, other.rank)}
    if len(by_others) < PATTERN and len({each.stream.tag for each in rest}) < COUNTED:
        return None
    turns: dict[Hashable, MessageEnd] = {each.stream.tag - traffic.turn(each): each for each in (end, other)}
    return against({each.stream.tag - traffic.turn(each) for each in rest}, turns)


def odd_by_steps(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one whose tag is not the next of its line: where that went on by equal steps, as the other's line does."""
    due = {each: _next_tag(each, traffic) for each in (end, other)}
    if None in due.values():
        return None
    odd = [each for each, tag in due.items() if each.stream.tag != tag]
    return odd[0] if len(odd) == 1 and due[odd[0]] == due[other if odd[0] is end else end] else None


def _next_tag(end: MessageEnd, traffic: Traffic) -> int | None:
    """What tag its line would have come to, going on as it did; None where it did not go on by equal steps for long."""
    tags = [
        each.stream.tag
        for each in traffic.ends.get(end.rank, ())
        if each.site == end.site and each.sends is end.sends and each.record.index < end.record.index
    ]
    steps = {after - before for before, after in pairwise(tags)}
    return tags[-1] + steps.pop() if len(steps) == 1 and len(tags) >= COUNTED else None


def odd_by_way(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one that has the tag of the other way, where all that others have met goes up with one tag, and down with
    another.
    """
    ways: dict[tuple[object, bool], set[int]] = {}
    for stream in traffic.streams:
        # What the two have sent each other that way is what is asked about.
        if traffic.met(stream) and (stream.source, stream.target) != (end.stream.source, end.stream.target):
            ways.setdefault(_way(stream), set()).add(stream.tag)
    group, up = _way(end.stream)
    due, back = ways.get((group, up), set()), ways.get((group, not up), set())
    tags = {each.stream.tag: each for each in (end, other)}
    if len(due) != 1 or len(back) != 1 or due | back != tags.keys():
        return None
    return tags[back.pop()]


def _way(stream: Stream) -> tuple[Hashable, bool]:
    """Its group, and whether it goes up in rank."""
    return stream.group, stream.source < stream.target


def odd_by_line(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one of which nothing tells, where others that came to the other one's line as often had that one's tag there,
    and met; or that all others who wait at either line speak against.
    """
    usual = [each for each in (end, other) if _has_the_lines_tag(each, traffic)]
    if len(usual) != 1:
        return _odd_by_who_waits(end, other, traffic) if not usual else None
    odd = other if usual[0] is end else end
    return odd if not list(_at_its_turn(odd, traffic)) else None


def _odd_by_who_waits(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one that all who wait at either line speak against; nobody, if it has the tag of its rank as they do."""
    waiting = [each.stream for one in (end, other) for each in _at_its_turn(one, traffic, met=False)]
    odd = against({stream.tag for stream in waiting}, {each.stream.tag: each for each in (end, other)})
    if odd is None:
        return None
    counted = any(
        odd.stream.tag - getattr(odd.stream, rank) == stream.tag - getattr(stream, rank)
        for rank in ("source", "target")
        for stream in waiting
    )
    return None if counted else odd


def _has_the_lines_tag(end: MessageEnd, traffic: Traffic) -> bool:
    tags = {each.stream.tag for each in _at_its_turn(end, traffic)}
    return tags == {end.stream.tag}


def _at_its_turn(end: MessageEnd, traffic: Traffic, *, met: bool = True) -> Iterator[MessageEnd]:
    """What others met that were at that line the same time, the third, say; or what they wait for there."""
    if end.site is None:
        return
    turn = sum(each.record.index < end.record.index for each in _from_its_line(end, end.rank, traffic))
    for rank in traffic.ends:
        there = _from_its_line(end, rank, traffic) if rank != end.rank else []
        if turn < len(there) and (traffic.met(there[turn].stream) > there[turn].number) is met:
            yield there[turn]


def _from_its_line(end: MessageEnd, rank: int, traffic: Traffic) -> list[MessageEnd]:
    made = traffic.ends.get(rank, ())
    return [
        each for each in made if (each.sends, each.site, each.stream.group) == (end.sends, end.site, end.stream.group)
    ]


def odd_by_range(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one whose tag lies beyond all that the two have sent each other, among those that met between other ranks,
    where the other one's lies among the two's: tags that count messages by their edges.
    """
    pair = {end.rank, other.rank}
    tags: dict[frozenset[int], set[int]] = {}
    for stream in traffic.streams:
        if traffic.met(stream) and stream.group == end.stream.group:
            tags.setdefault(frozenset({stream.source, stream.target}), set()).add(stream.tag)
    own = tags.pop(frozenset(pair), set())
    if len(own) < COUNTED or any(min(each) <= max(own) and min(own) <= max(each) for each in tags.values()):
        return None
    beyond = [each for each in (end, other) if not min(own) <= each.stream.tag <= max(own)]
    among = any(min(each) <= one.stream.tag <= max(each) for one in beyond for each in tags.values())
    return beyond[0] if len(beyond) == 1 and among else None


def odd_by_slope(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> MessageEnd | None:
    """The one that is not on the straight line which the others' tags, at that turn, and the other end lie on, by rank.

    Each of the others has one tag there: those of several senders, or receivers, and no two the same.
    """
    turn = traffic.turn(end)
    rest = [
        each.stream
        for rank, ends in traffic.ends.items()
        if rank not in (end.rank, other.rank)
        for each in ends
        if each.stream.group == end.stream.group and traffic.turn(each) == turn
    ]
    odd = set()
    for rank_of in (attrgetter("source"), attrgetter("target")):
        due = _on_line({(rank_of(stream), stream.tag) for stream in rest}, rank_of(end.stream))
        odd.add(against(set() if due is None else {due}, {each.stream.tag: each for each in (end, other)}))
    return odd.pop() if len(odd) == 1 and traffic.turn(other) == turn else None


def _on_line(points: set[tuple[int, int]], rank: int) -> int | None:
    """The tag that `rank` has if it lies on the line through all `points`, which are ranks and their tags."""
    if len({x for x, _ in points} - {rank}) < max(PATTERN, len(points)):
        return None
    (x0, y0), (x1, y1) = sorted(points)[:2]
    slope, left = divmod(y1 - y0, x1 - x0)
    straight = not left and slope and all(y - y0 == slope * (x - x0) for x, y in points)
    return y0 + slope * (rank - x0) if straight else None


def against(votes: Set[Hashable], ends: dict[Hashable, MessageEnd]) -> MessageEnd | None:
    """The end that the `votes`, if they are of one mind, do not speak for."""
    if len(votes) != 1 or len(ends) != 2:
        return None
    (vote,) = votes
    odd = [each for value, each in ends.items() if value != vote]
    return odd[0] if len(odd) == 1 else None
