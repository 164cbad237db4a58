"""What a rank used to do next: of ranks that wait for each other, the one that left its own rhythm.

The calls that led up to this one are looked for among the rank's earlier ones, as many of them as match; what followed
them then was to be expected now. Where several passages match equally well and were followed by different things,
nothing was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeAlias

from rankdrill.diagnosis.messages.traffic import RECEIVING, SEND_CALLS, MessageEnd, Stream, Traffic

__all__ = ["Departure", "are_of_one_library", "departure"]

MOST_LOOKED_AT = 256  # messages of one rank, the newest
LONGEST = 32  # messages that are compared with those that led up to one
_ASKED_FOR = SEND_CALLS | RECEIVING | {""}  # by the user, for that message
_Act: TypeAlias = tuple[bool, Stream]


@dataclass(frozen=True)
class Departure:
    """A rank waits in `end`, where after the same calls it used to do what it did in `usual`."""

    end: MessageEnd
    usual: MessageEnd


def departure(ends: Sequence[MessageEnd], traffic: Traffic) -> Departure | None:
    """That of the one rank in `ends` that has left its rhythm; None if none has, or several have."""
    found = [one for end in ends if (one := _departure(end, traffic.ends.get(end.rank, ()))) is not None]
    return found[0] if len(found) == 1 else None


def _departure(end: MessageEnd, made: Sequence[MessageEnd]) -> Departure | None:
    past = [each for each in made if each.record.index < end.record.index][-MOST_LOOKED_AT:]
    acts = [_act(each) for each in past]
    lengths = {place: _alike(acts, place) for place in range(1, len(acts))}
    longest = max(lengths.values(), default=0)
    if not longest:
        return None
    followers = [past[place] for place, length in lengths.items() if length == longest]
    usual = followers[-1]
    if len({_act(each) for each in followers}) > 1 or _act(usual) == _act(end):
        return None
    in_a_row = sum(1 for _ in takewhile(lambda act: act == acts[-1], reversed(acts)))
    if _act(usual) == acts[-1] and longest <= in_a_row:  # how many there are to be in a row, no row before has told
        return None
    return Departure(end, usual)


def _alike(acts: Sequence[_Act], place: int) -> int:
    """How many acts before `place` are the same as the last ones of all."""
    length = 0
    while length < min(place, LONGEST) and acts[place - 1 - length] == acts[-1 - length]:
        length += 1
    return length


def _act(end: MessageEnd) -> _Act:
    return end.sends, end.stream


def are_of_one_library(ends: Sequence[MessageEnd]) -> bool:
    """Whether one public function of a library has made all of them within what the user called: `Schedule.step`."""
    vias = {end.site.via if end.site is not None and _is_by_itself(end) else "" for end in ends}
    return len(vias) == 1 and "" not in vias


def _is_by_itself(end: MessageEnd) -> bool:
    """Whether a library made it within what the user called."""
    return end.site is not None and end.site.via not in _ASKED_FOR
