"""Whether two ends that seem to have missed each other were never meant to meet: each goes where its line always goes.

Forward goes down and backward up; in a ring of pairs one sends first and the next one after. Where ranks wait for each
other there nobody has named a wrong rank.
"""

from __future__ import annotations

from rankdrill.diagnosis.calls.either_way import are_mirrored, is_mutual
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic

__all__ = ["are_by_turns"]


def are_by_turns(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> bool:
    """Whether `other` is not what was meant for `end`, nor the other way round, as the source has it."""
    if end.site is None or other.site is None:
        return False
    if are_mirrored(end.site, other.site):
        return True
    function = (end.site.file, end.site.function)
    if (other.site.file, other.site.function) != function or not is_mutual(end.site):
        return False
    there = [
        each
        for made in traffic.ends.values()
        for each in made
        if each.site is not None and (each.site.file, each.site.function) == function
    ]
    return len({(each.peer - each.rank) % len(traffic.ends) for each in there}) == 1
