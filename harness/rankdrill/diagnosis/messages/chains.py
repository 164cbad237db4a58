"""Chains of ranks in which each hands on what it takes, one for one: who has left one is not who waits in it still."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rankdrill.diagnosis.messages.traffic import MessageEnd, Stream, Traffic

__all__ = ["left_its_chain"]


def left_its_chain(end: MessageEnd, traffic: Traffic, returned: Collection[int]) -> tuple[int, ...]:
    """Its peer, where that has returned, and the rank of `end` hands on to it what another one sends, which has come to
    that round as well: two against one.

    Nobody before the second round: what has happened once need not go on.
    """
    if not end.sends or end.peer not in returned or end.rank in returned or not end.number:
        return ()
    made = [each for each in traffic.ends.get(end.rank, ()) if each.record.index <= end.record.index]
    sources = {each.stream for each in made if not each.sends and each.stream.group == end.stream.group}
    before = [
        stream
        for stream in sources
        if stream.source not in returned and stream.source != end.peer and _hands_on(made, stream, end)
    ]
    return (end.peer,) if len(before) == 1 else ()


def _hands_on(made: Sequence[MessageEnd], taken: Stream, end: MessageEnd) -> bool:
    """Whether its rank has sent each of the messages up to `end` right after it had received that of its number."""
    turns = [(each.sends, each.number) for each in made if each.stream in (taken, end.stream)]
    return turns == [(sends, number) for number in range(end.number + 1) for sends in (False, True)]
