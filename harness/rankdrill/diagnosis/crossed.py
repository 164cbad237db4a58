"""Ranks that wait for one another in different groups: who took another group than most."""

from __future__ import annotations

from collections.abc import Mapping

from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.step import NO_SEQUENCE

__all__ = ["crossed_groups"]


def crossed_groups(waits: Mapping[int, Wait]) -> Finding | None:
    """What is wrong where ranks wait for each other in two groups; None where they do not.

    Only where nobody else is waited for: a rank that left, or died, explains more. Only members of both groups have
    a say in which of them was the right one: whoever had no choice is no witness.
    """
    sides: dict[tuple[str, int, str], list[int]] = {}
    for rank, wait in waits.items():
        step = wait.record.step
        sides.setdefault((step.target, step.sequence, step.op), []).append(rank)
    if any(sequence == NO_SEQUENCE for _, sequence, _ in sides):
        return None  # there is a message among them, which says more
    if len(sides) != 2 or len({target for target, *_ in sides}) != 2:
        return None
    one, other = sides.values()
    for_other, for_one = _awaited(one, waits), _awaited(other, waits)
    if not (for_other and for_one and for_other <= set(other) and for_one <= set(one)):
        return None
    voters = (set(one) | for_other) & (set(other) | for_one)
    few, most = sorted(([rank for rank in side if rank in voters] for side in (one, other)), key=len)
    if not few:
        return None
    culprits = tuple(sorted(few)) if len(most) > len(few) else ()
    step = waits[most[0]].record.step
    told = sorted((_side(few, waits), _side(most, waits)), key=lambda side: side.ranks)
    if culprits:
        told.sort(key=lambda side: side.ranks != culprits)
    return Finding(FindingKind.GROUP, f"{step.op} #{step.sequence} on {step.target!r}", "group", tuple(told), culprits)


def _awaited(ranks: list[int], waits: Mapping[int, Wait]) -> set[int]:
    return {missing for rank in ranks for missing in waits[rank].missing}


def _side(ranks: list[int], waits: Mapping[int, Wait]) -> Side:
    step = waits[ranks[0]].record.step
    verb = "waits" if len(ranks) == 1 else "wait"
    did = f"{verb} in {step.op} #{step.sequence} on {step.target!r}"
    return side_of(ranks, did, [waits[rank].record.step.site for rank in ranks])
