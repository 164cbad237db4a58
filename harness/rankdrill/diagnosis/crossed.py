"""Ranks that wait for one another in different groups: who took another group than most."""

from __future__ import annotations

from collections.abc import Mapping

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait

__all__ = ["crossed_groups"]


def crossed_groups(waits: Mapping[int, Wait], size: int) -> Finding | None:
    """What is wrong where ranks of a world of `size` wait for each other in two groups; None where they do not.

    Only where nobody else is waited for: a rank that left, or died, explains more.
    """
    sides: dict[tuple[str, int, str], list[int]] = {}
    for rank, wait in waits.items():
        step = wait.record.step
        sides.setdefault((step.target, step.sequence, step.op), []).append(rank)
    ordered = sorted(sides.values(), key=lambda ranks: (len(ranks), ranks[0]))
    if len(ordered) != 2 or len({target for target, *_ in sides}) != 2:
        return None
    few, most = ordered
    for_most, for_few = _awaited(few, waits), _awaited(most, waits)
    if not (for_most and for_few and for_most <= set(most) and for_few <= set(few)):
        return None
    culprits = tuple(sorted(few)) if 2 * len(most) > size else ()
    step = waits[most[0]].record.step
    told = (_side(few, waits), _side(most, waits))
    return Finding(FindingKind.GROUP, f"{step.op} #{step.sequence} on {step.target!r}", "group", told, culprits)


def _awaited(ranks: list[int], waits: Mapping[int, Wait]) -> set[int]:
    return {missing for rank in ranks for missing in waits[rank].missing}


def _side(ranks: list[int], waits: Mapping[int, Wait]) -> Side:
    step = waits[ranks[0]].record.step
    verb = "waits" if len(ranks) == 1 else "wait"
    did = f"{verb} in {step.op} #{step.sequence} on {step.target!r}"
    return side_of(ranks, did, [waits[rank].record.step.site for rank in ranks])
