"""Groups side by side that come apart in one way: by ``if dist.get_rank(group) == 0``, each of them has an odd one.

What the ranks of one say of another is then said of their own as well: it speaks for neither half, unless there are
groups that have stayed together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.step import NO_SEQUENCE, Step

__all__ = ["split_alike", "with_groups_alike"]

_HALVES = frozenset({FindingKind.MISSING, FindingKind.EXTRA, FindingKind.CALL_ORDERING, FindingKind.GROUP})
"""What may be said of two that came apart."""


def split_alike(wait: Wait, waits: Mapping[int, Wait], returned: Collection[int]) -> list[Wait]:
    """Who waits in the call of `wait` as well, on other groups, for as many that are where its own missing ones are."""
    step = wait.record.step
    away = _whereabouts(wait.missing, waits, returned)
    return [
        each
        for each in waits.values()
        if each.record.step.target != step.target
        and _call(each.record.step) == _call(step)
        and len(each.missing) == len(wait.missing)
        and _whereabouts(each.missing, waits, returned) == away
    ]


def with_groups_alike(finding: Finding, waits: Mapping[int, Wait], returned: Collection[int]) -> Finding:
    """`finding`, of one against one, told of those as well who came apart as these did, each in a group of its own."""
    if finding.culprits or finding.kind not in _HALVES or [len(side.ranks) for side in finding.sides] != [1, 1]:
        return finding
    here, there = finding.sides
    wait = waits.get(here.ranks[0])
    if wait is None or wait.missing != there.ranks:
        here, there = there, here
        wait = waits.get(here.ranks[0])
    if wait is None or wait.missing != there.ranks or wait.record.step.sequence == NO_SEQUENCE:
        return finding
    alike = split_alike(wait, waits, returned)
    if not alike:
        return finding
    step = wait.record.step
    call = named(step).removesuffix(step.call) + f"{step.op} #{step.sequence}"
    did = f"wait in {call}, each on a group of its own"
    inside = side_of(
        [*here.ranks, *(each.rank for each in alike)], did, [*here.sites, *(each.record.step.site for each in alike)]
    )
    away = [rank for each in alike for rank in each.missing]
    return replace(finding, sides=(inside, _with_more(there, away, waits)))


def _with_more(side: Side, ranks: Sequence[int], waits: Mapping[int, Wait]) -> Side:
    """`side`, and `ranks` that did the same."""
    did = side.did.replace("waits ", "wait ", 1) if side.did.startswith("waits ") else side.did
    sites = [waits[rank].record.step.site if rank in waits else side.sites[0] for rank in ranks]
    return side_of([*side.ranks, *ranks], did, [*side.sites, *sites])


def _call(step: Step) -> tuple[object, ...]:
    return step.op, step.sequence, step.site


def _whereabouts(ranks: Collection[int], waits: Mapping[int, Wait], returned: Collection[int]) -> frozenset[object]:
    """Where these are: in which call, or at their end."""
    found: set[object] = set()
    for rank in ranks:
        if rank in waits:
            step = waits[rank].record.step
            found.add((step.target, *_call(step)))
        else:
            found.add(rank in returned)
    return frozenset(found)
