"""Ranks that wait for each other in a circle: each is right by itself, and none of them can go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.waits import FEW, Wait, name_ranks
from rankdrill.step import Site

__all__ = ["circle_in", "deadlock", "deadlock_of", "in_circle", "in_circles_alike", "in_every_circle"]


def circle_in(lost: Mapping[int, Wait]) -> list[int]:
    """Ranks of which each waits for the next and the last for the first, from the lowest on; of several, one."""
    for first in sorted(lost):  # two that wait for each other say most
        for other in lost[first].missing:
            if other in lost and first in lost[other].missing:
                return [first, other]
    for first in sorted(lost):
        path = [first]
        while True:
            following = min((rank for rank in lost[path[-1]].missing if rank in lost), default=None)
            if following is None:
                break
            if following in path:
                circle = path[path.index(following) :]
                lowest = circle.index(min(circle))
                return circle[lowest:] + circle[:lowest]
            path.append(following)
    return []


def in_every_circle(circle: Sequence[Wait], lost: Mapping[int, Wait]) -> tuple[int, ...]:
    """The one rank of `circle` without which none of the `lost` would wait in a circle; nobody, if there are several.

    Where one rank does something wrong, the others cannot wait for each other without it: without the mistake they
    would, too.
    """
    if len(circle) > FEW or any(wait.anyone for wait in lost.values()):
        return ()
    those = [wait.rank for wait in circle if not _go_round(lost.keys() - {wait.rank}, lost)]
    return tuple(those) if len(those) == 1 else ()


def _go_round(ranks: Collection[int], lost: Mapping[int, Wait]) -> bool:
    """Whether some of `ranks` wait for each other."""
    waits = {rank: [other for other in lost[rank].missing if other in ranks] for rank in ranks}
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        return True
    return False


def deadlock(circle: Sequence[Wait], culprits: tuple[int, ...] = (), likewise: Sequence[Wait] = ()) -> Finding:
    """Each waits for the next; of those that did it in another order than before, one is a culprit.

    Those that wait `likewise` do so in circles of their own.
    """
    sides: dict[object, list[Wait]] = {}
    for wait in (*circle, *likewise):
        step = wait.record.step
        alike = (step.op, step.site) if len(circle) + len(likewise) > FEW else wait.rank
        sides.setdefault(alike, []).append(wait)
    told = [in_circle(waits) for waits in sides.values()]
    return deadlock_of(circle, told, culprits, [wait.rank for wait in likewise])


def in_circles_alike(circle: Sequence[Wait], lost: Mapping[int, Wait]) -> list[Wait]:
    """Those of the `lost` that wait in other circles, in the calls and at the lines that `circle` waits in, or in one
    function that was called from one line.
    """
    found: list[Wait] = []
    rest = {rank: wait for rank, wait in lost.items() if rank not in {each.rank for each in circle}}
    while another := [rest[rank] for rank in circle_in(rest)]:
        if _calls(another) == _calls(circle) or _are_in_one_call([*another, *circle]):
            found += another
        for wait in another:
            del rest[wait.rank]
    return found


def _calls(circle: Sequence[Wait]) -> Counter[tuple[str, Site | None]]:
    return Counter((wait.record.step.op, wait.record.step.site) for wait in circle)


def _are_in_one_call(waits: Sequence[Wait]) -> bool:
    """Whether all wait in one function, which one line called."""
    sites = [wait.record.step.site for wait in waits]
    calls = {(site.file, site.function, site.caller) for site in sites if site is not None and site.caller is not None}
    return len(calls) == 1 and all(site is not None and site.caller is not None for site in sites)


def deadlock_of(
    circle: Sequence[Wait], sides: Sequence[Side], culprits: tuple[int, ...] = (), likewise: Sequence[int] = ()
) -> Finding:
    """That of `circle`, told by `sides`, which may tell of more ranks than are in it; others wait `likewise`."""
    names = [f"rank {wait.rank}" for wait in (*circle[:FEW], circle[0])]
    if len(circle) > FEW:
        names.insert(FEW, f"… {len(circle) - FEW} more …")
    first, second, *more = names
    told = f"{first} waits for {second}" + "".join(f", which waits for {name}" for name in more)
    if likewise:
        told += f", and so do {name_ranks(sorted(likewise))} among themselves"
    told_of = sorted(sides, key=lambda side: side.ranks != culprits)
    return Finding(FindingKind.DEADLOCK, told, "order", tuple(told_of), culprits)


def in_circle(waits: Sequence[Wait]) -> Side:
    record = waits[0].record
    did = words.waits(record) if len(waits) == 1 else f"wait in {record.step.op}, each for the next"
    return side_of([wait.rank for wait in waits], did, [wait.record.step.site for wait in waits])
