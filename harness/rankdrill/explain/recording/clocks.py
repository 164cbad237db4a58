"""The clocks of several machines, brought together by the collectives themselves.

A collective in which every rank needs what every other brings cannot end on one rank before it began on another. So
each such call bounds, from both sides, by how much two machines' monotonic clocks differ; what the machines take for
the time of day only says where to begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy

from rankdrill.explain.recording.raw import Calls

__all__ = ["Clock", "by_time_of_day", "shifts_of"]

_MEETING = [b"all_reduce", b"barrier", b"all_gather", b"all_gather_into_tensor", b"reduce_scatter_tensor"]
UNBOUND = 1 << 62  # ns
FEW = 2  # ranks of each machine that are compared


@dataclass(frozen=True)
class Clock:
    """Of one rank: its machine, and by how much the time of day was ahead of its monotonic clock."""

    machine: str
    ahead_ns: int


def shifts_of(clocks: Mapping[int, Clock], calls: Mapping[int, Mapping[str, Calls]]) -> dict[int, int]:
    """What is to be added to the times of each rank, so that all are by one clock, that of the first rank's machine.

    `calls` are the collectives of each rank, by group, of groups in which a rank that has waited has met the others.
    """
    ranks = sorted(clocks)
    if not ranks:
        return {}
    home = clocks[ranks[0]]
    away = [rank for rank in ranks if clocks[rank].machine != home.machine]
    shifts = dict.fromkeys(ranks, 0) | {rank: clocks[rank].ahead_ns - home.ahead_ns for rank in away}
    for machine in dict.fromkeys(clocks[rank].machine for rank in ranks):
        theirs = [rank for rank in ranks if clocks[rank].machine == machine]
        if machine == home.machine or not theirs:
            continue
        ours = [rank for rank in ranks if clocks[rank].machine == home.machine]
        low, high = _bounds(ours, theirs, calls)
        first = shifts[theirs[0]]
        # Between the bounds the time of day is as good as anything.
        agreed = min(max(first, low), high) if low <= high else (low + high) // 2
        shifts |= dict.fromkeys(theirs, int(agreed))
    return shifts


def by_time_of_day(clocks: Mapping[int, Clock], calls: Mapping[int, Mapping[str, Calls]]) -> tuple[int, ...]:
    """The ranks of machines that no such call brings together with the first rank's."""
    ranks = sorted(clocks)
    ours = [rank for rank in ranks if clocks[rank].machine == clocks[ranks[0]].machine]
    found: list[int] = []
    for machine in {clocks[rank].machine for rank in ranks if rank not in ours}:
        theirs = [rank for rank in ranks if clocks[rank].machine == machine]
        low, high = _bounds(ours, theirs, calls)
        if low == -UNBOUND or high == UNBOUND:
            found += theirs
    return tuple(sorted(found))


def _bounds(ours: Sequence[int], theirs: Sequence[int], calls: Mapping[int, Mapping[str, Calls]]) -> tuple[int, int]:
    """The least and the most that may be added to their times."""
    low, high = -UNBOUND, UNBOUND
    for mine, other in product(ours[:FEW], theirs[:FEW]):
        for group in calls.get(mine, {}).keys() & calls.get(other, {}).keys():
            here, there = calls[mine][group], calls[other][group]
            _, at, to = numpy.intersect1d(here["sequence"], there["sequence"], return_indices=True)
            one, two = here[at], there[to]
            met = (one["end"] > 0) & (two["end"] > 0) & (one["digest"] == two["digest"])
            met &= numpy.isin(one["op"], _MEETING)
            one, two = one[met], two[met]
            if len(one):
                # Theirs, shifted, ends after ours began, and begins before ours ended.
                low = max(low, int((one["begin"].astype("i8") - two["end"].astype("i8")).max()))
                high = min(high, int((one["end"].astype("i8") - two["begin"].astype("i8")).min()))
    return low, high
