"""A rank that calls on another group than it should: others wait for it in theirs, in the same call of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.calls.naming import named
from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import GROUP_OP, LedgerView
from rankdrill.step import NO_SEQUENCE, Kind, Step

__all__ = ["wrong_group"]

CUSTOM = 2  # times that a line was at one group before it is a custom


def wrong_group(waits: Mapping[int, Wait], views: Sequence[LedgerView], noticed: Finding | None) -> Finding | None:
    """What is wrong where one rank took another group than those that wait for it; None where none did.

    `noticed` is a contract that was broken on the group it took, where nobody is in the majority.
    """
    calls = {rank: wait.record.step for rank, wait in waits.items()}
    if noticed is not None:
        for rank in noticed.ranks:
            found = calls_on(noticed.group, views[rank]).get(noticed.number)
            if found is not None:
                calls[rank] = found
    awaiting = {
        rank: [other for other, wait in waits.items() if _meant(step, wait, rank)]
        for rank, step in calls.items()
        if step.sequence != NO_SEQUENCE
    }
    most = sorted(awaiting, key=lambda rank: len(awaiting[rank]), reverse=True)
    # Where two are waited for by as many, each took another group than the other, and nobody can say who was right.
    if most and len(awaiting[most[0]]) > max((len(awaiting[rank]) for rank in most[1:]), default=0):
        return _told(most[0], calls[most[0]], awaiting[most[0]], waits)
    return _against_custom(waits, views) if noticed is None else None


def _meant(step: Step, wait: Wait, rank: int) -> bool:
    """Whether `wait`, in another group and for `rank`, is the call of the program that `rank` made as `step`."""
    theirs = wait.record.step
    if rank not in wait.missing or theirs.target == step.target or theirs.op != step.op or step.site is None:
        return False
    if theirs.site is None:
        return False
    return theirs.site == step.site or order_of(theirs.site, step.site) is Order.APART


def _against_custom(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> Finding | None:
    """The one rank of which a line that has always called on one group called on another, where others wait for it."""
    odd = {}
    for rank in {rank for wait in waits.values() for rank in wait.missing if rank < len(views)}:
        found = _break_of_custom(views[rank])
        if found is not None:
            odd[rank] = found
    if len(odd) != 1:
        return None
    ((rank, (step, usual)),) = odd.items()
    awaiting = [other for other, wait in waits.items() if rank in wait.missing and wait.record.step.target == usual]
    return _told(rank, step, awaiting, waits) if awaiting else None


def _break_of_custom(view: LedgerView) -> tuple[Step, str] | None:
    """The first call from a line that was at another group each time before, and that group."""
    usual: dict[object, list[str]] = {}
    for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE):
        step = record.step
        if step.sequence == NO_SEQUENCE or step.op == GROUP_OP or step.site is None:
            continue
        before = usual.setdefault(step.site, [])
        if len(before) >= CUSTOM and step.target not in before and len(set(before)) == 1:
            return step, before[0]
        before.append(step.target)
    return None


def _told(rank: int, step: Step, awaiting: list[int], waits: Mapping[int, Wait]) -> Finding:
    theirs = waits[awaiting[0]].record.step
    verb = "waits" if len(awaiting) == 1 else "wait"
    sides = (
        side_of([rank], f"calls {named(step)}", [step.site]),
        side_of(awaiting, f"{verb} for it in {named(theirs)}", [waits[other].record.step.site for other in awaiting]),
    )
    return Finding(FindingKind.GROUP, theirs.call, "group", sides, (rank,), theirs.target, theirs.sequence)
