"""Ranks that wait for one another in two groups: who took another group than most, or came to a call too early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.waits import Wait, name_ranks
from rankdrill.ledger import LedgerView
from rankdrill.step import NO_SEQUENCE, Kind, Step

__all__ = ["crossed_groups"]


def crossed_groups(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
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
    return _told(few, most, waits, views)


def _told(few: list[int], most: list[int], waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding:
    culprits = tuple(sorted(few)) if len(most) > len(few) else ()
    odd, step = waits[few[0]].record.step, waits[most[0]].record.step
    told = sorted((_side(few, waits), _side(most, waits)), key=lambda side: side.ranks)
    if culprits:
        told.sort(key=lambda side: side.ranks != culprits)
    kind = _kind(odd, step, views[few[0]], majority=bool(culprits))
    if kind is FindingKind.DEADLOCK:
        one, other = told
        first, second = name_ranks(one.ranks), name_ranks(other.ranks)
        circle = f"{first} {_verb(one.ranks)} for {second}, which {_verb(other.ranks)} for {first}"
        return Finding(kind, circle, "order", tuple(told), culprits)
    finding = Finding(kind, step.call, "group", tuple(told), culprits)
    if kind is not FindingKind.MISSING:
        return finding
    did = f"{'leaves' if len(few) == 1 else 'leave'} out {named(step)}"
    return replace(finding, sides=(side_of(few, did, [step.site] * len(few)), *told))


def _kind(odd: Step, step: Step, view: LedgerView, *, majority: bool) -> FindingKind:
    """What it is called that one waits in `odd` where most wait in `step`, of another group."""
    if odd.op == step.op and (_from_both_groups(odd, step, view) or (not majority and odd.site == step.site)):
        return FindingKind.DEADLOCK
    if majority and odd.op != step.op and odd.site is not None and step.site is not None:
        # It has gone past the others' call, to one behind it.
        return FindingKind.MISSING if order_of(step.site, odd.site) is Order.AFTER else FindingKind.GROUP
    return FindingKind.GROUP


def _from_both_groups(odd: Step, step: Step, view: LedgerView) -> bool:
    """Whether the line at which it waits has served both groups before: in turn, which is now another one."""
    groups = {
        record.step.target
        for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE)
        if record.step.site == odd.site
    }
    return odd.site is not None and {odd.target, step.target} <= groups


def _awaited(ranks: list[int], waits: Mapping[int, Wait]) -> set[int]:
    return {missing for rank in ranks for missing in waits[rank].missing}


def _side(ranks: list[int], waits: Mapping[int, Wait]) -> Side:
    step = waits[ranks[0]].record.step
    did = f"{_verb(ranks)} in {named(step)}"
    return side_of(ranks, did, [waits[rank].record.step.site for rank in ranks])


def _verb(ranks: Sequence[int]) -> str:
    return "waits" if len(ranks) == 1 else "wait"
