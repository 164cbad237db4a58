"""Whether two ends that seem to have missed each other were never meant to meet: each goes where its line always goes.

Forward goes down and backward up; in a ring of pairs one sends first and the next one after. Where ranks wait for each
other there nobody has named a wrong rank.
"""

from __future__ import annotations

from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.either_way import are_mirrored, is_mutual
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.messages.traffic import MessageEnd, Traffic
from rankdrill.step import Site

__all__ = ["are_by_turns"]


def are_by_turns(end: MessageEnd, other: MessageEnd, traffic: Traffic) -> bool:
    """Whether `other` is not what was meant for `end`, nor the other way round, as the source has it."""
    if end.site is None or other.site is None:
        return False
    if are_mirrored(end.site, other.site):
        one, two = from_one_function(end.site, other.site)
        if one.place != two.place and order_of(one, two) in (Order.BEFORE, Order.AFTER):
            return True  # who comes to the one comes to the other one, too
        return all(len({each.rank for each in _there(site, traffic)}) > 1 for site in (end.site, other.site))
    if _function(other.site) != _function(end.site) or not is_mutual(end.site):
        return False
    ways = {(each.peer - each.rank) % len(traffic.ends) for each in _there(end.site, traffic)}
    return len(ways) == 1 and len(traffic.ends) > 2


def _there(site: Site, traffic: Traffic) -> list[MessageEnd]:
    """All messages of the function that `site` is in."""
    made = (each for ends in traffic.ends.values() for each in ends)
    return [each for each in made if each.site is not None and _function(each.site) == _function(site)]


def _function(site: Site) -> tuple[str, str]:
    return site.file, site.function
