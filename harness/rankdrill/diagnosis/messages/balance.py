"""Of ranks that wait for each other's messages in a circle the one that is a message behind at its line, or ahead.

Where ranks send there and back, whoever comes to a line has received so many more from its peer there than it has sent
to it: one more where it answers, say. Who alone comes there with another difference has left one out, or made one more.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic

__all__ = ["is_in_balance", "out_of_balance"]

FEWEST = 2  # times that others came to a line, or the rank itself before


def out_of_balance(ends: Sequence[MessageEnd], traffic: Traffic) -> tuple[MessageEnd, int] | None:
    """The end that waits in vain, and the rank that is at fault for that; None where not one stands out."""
    differences = {end.rank: _difference(end, traffic) for end in ends}
    if len(ends) == 2 and set(differences.values()) == {None, 0}:  # of two one is as all were there
        differences = {end.rank: _difference(end, traffic, 1) if differences[end.rank] is None else 0 for end in ends}
    apart = {end.rank: end for end in ends if (differences[end.rank] or 0)}
    unknown = [rank for rank, difference in differences.items() if difference is None]
    if len(apart) != 1 or unknown:
        return None
    ((rank, odd),) = apart.items()
    behind = (differences[rank] or 0) < 0  # it has received too few, or sent too many
    waiting = next((end for end in ends if end.peer == rank), None)
    if waiting is not None and waiting.sends is behind:
        return waiting, rank
    return (odd, rank) if odd.sends is behind else None


def is_in_balance(end: MessageEnd, traffic: Traffic) -> bool:
    """Whether its rank has come there with as many as is usual at that line; no if nothing is."""
    return _difference(end, traffic) == 0


def _difference(end: MessageEnd, traffic: Traffic, fewest: int = FEWEST) -> int | None:
    """How many more it has received, less those that it has sent, than is usual at its line; None if nothing is."""
    usual = [
        _balance(each, traffic)
        for made in traffic.ends.values()
        for each in made
        if each.sends is end.sends
        and each.stream.group == end.stream.group
        and each.site is not None
        and end.site is not None
        and each.site.place == end.site.place
        and (each.rank, each.record.index) != (end.rank, end.record.index)
        and traffic.met(each.stream) > each.number
    ]
    if len(usual) < fewest or len(set(usual)) > 1:
        return None
    return _balance(end, traffic) - usual[0]


def _balance(end: MessageEnd, traffic: Traffic) -> int:
    """Messages received from its peer there before, less those sent to it."""
    before = [
        each
        for each in traffic.ends.get(end.rank, ())
        if each.peer == end.peer and each.stream.group == end.stream.group and each.record.index < end.record.index
    ]
    return sum(-1 if each.sends else 1 for each in before)
