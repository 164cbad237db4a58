"""One message too few, or one too many: who of its two ranks has lost count, as other messages tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rankdrill.diagnosis.messages.traffic import MessageEnd, Stream, Traffic
from rankdrill.diagnosis.waits import Wait

__all__ = ["miscounted", "out_of_step"]


def miscounted(end: MessageEnd, traffic: Traffic, undecided: Collection[Stream]) -> int | None:
    """Who of the two has done one too few, or one too many, if all others' messages with this tag are as many.

    Streams that are `undecided` have ends left over themselves.
    """
    counts = {
        traffic.met(stream)
        for stream in traffic.streams
        if (stream.group, stream.tag) == (end.stream.group, end.stream.tag) and stream not in undecided
    }
    if counts == {end.number + 1}:
        return end.peer
    return end.rank if counts == {end.number} else None


def out_of_step(end: MessageEnd, waits: Mapping[int, Wait], traffic: Traffic) -> int | None:
    """Who of the two has done another number of its ends since the last collective than in the round before that.

    Of use where the other rank waits in the next collective already.
    """
    wait = waits.get(end.peer)
    mine, theirs = traffic.rounds.get(end.rank, 0), traffic.rounds.get(end.peer, 0) - 1
    if wait is None or wait.record.step.message is not None or min(mine, theirs) < 1:
        return None

    def change(rank: int, number: int, *, sends: bool) -> int:
        now, before = (traffic.in_round(rank, each, sends=sends, stream=end.stream) for each in (number, number - 1))
        return now - before

    more = change(end.rank, mine, sends=end.sends) > 0
    less = change(end.peer, theirs, sends=not end.sends) < 0
    if more is less:
        return None
    return end.rank if more else end.peer
