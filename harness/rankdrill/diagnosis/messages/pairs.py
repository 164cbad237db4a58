"""Pairs of ranks that exchange at one line, both ways: what another pair did there was to be done by this one."""

from __future__ import annotations

from collections.abc import Collection

from rankdrill.diagnosis.messages.traffic import MessageEnd, Stream, Traffic

__all__ = ["left_its_pair"]


def left_its_pair(end: MessageEnd, traffic: Traffic, returned: Collection[int]) -> tuple[int, ...]:
    """Its peer, where that has returned, and all other pairs of the same lines have exchanged once more than these two.

    Whoever is in a pair with one of the two as well, in turn, is held up with it.
    """
    if end.peer not in returned or end.rank in returned or not end.number:
        return ()
    if {traffic.met(end.stream), traffic.met(_back(end.stream))} != {end.number}:
        return ()
    lines = _lines_of(end.stream, traffic)
    like = (end.stream.group, end.stream.tag)
    counts = {
        traffic.met(stream)
        for stream in traffic.streams
        if (stream.group, stream.tag) == like
        and {stream.source, stream.target}.isdisjoint((end.rank, end.peer))
        and traffic.met(_back(stream))
        and _lines_of(stream, traffic) == lines
    }
    return (end.peer,) if counts == {end.number + 1} else ()


def _back(stream: Stream) -> Stream:
    return stream._replace(source=stream.target, target=stream.source)


def _lines_of(stream: Stream, traffic: Traffic) -> set[tuple[str, int]]:
    """Where the two exchange."""
    streams, ranks = (stream, _back(stream)), (stream.source, stream.target)
    ends = (each for rank in ranks for each in traffic.ends.get(rank, ()) if each.stream in streams)
    return {each.site.place for each in ends if each.site is not None}
