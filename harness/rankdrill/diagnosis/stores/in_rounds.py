"""A line that sets a key of each round, and a rank in that loop: whether it is still to come to that of a later one."""

from __future__ import annotations

from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function
from rankdrill.diagnosis.stores.calls import StoreCalls
from rankdrill.diagnosis.stores.setters import may_set_at
from rankdrill.diagnosis.stores.uses import number_in
from rankdrill.diagnosis.waits import Wait
from rankdrill.step import Site

__all__ = ["comes_round_to"]


def comes_round_to(key: str, wait: Wait, calls: StoreCalls) -> bool:
    """Whether the rank that is in `wait` may come round to setting `key`: it has set those of rounds before that, one
    each time, at one line of the loop that it waits in.
    """
    here = wait.record.step.site
    if here is None or not calls.whole or wait.record.step.target == key:
        return False
    return any(
        _sets_in_turn(key, wait.rank, site, calls) and may_set_at(site, key) and _is_round(here, site)
        for site in calls.lines_that_set()
    )


def _sets_in_turn(key: str, rank: int, site: Site, calls: StoreCalls) -> bool:
    """Whether each key that it has set at that line has the next number, and that of `key` is to come."""
    told = [number_in(key, record.step.target) for record in calls.set_at(rank, site)]
    known = [each for each in told if each is not None]
    if not known or len(known) < len(told) or len({place for place, _, _ in known}) != 1:
        return False
    numbers = [number for _, _, number in known]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers))) and known[0][1] > numbers[-1]


def _is_round(here: Site, site: Site) -> bool:
    return come_round(*from_one_function(here, site))
