"""Planned faults that did not strike, each with why: what steps the rank took instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rankdrill.faults.fault import Fault
from rankdrill.faults.plan import Plan
from rankdrill.ledger import LedgerView

__all__ = ["MAX_LISTED", "struck", "unfired"]

MAX_LISTED = 8  # runs of equal steps named in one message


def struck(plan: Plan, fired: Sequence[Sequence[int]]) -> list[tuple[Fault, list[int]]]:
    """Each fault of `plan` that struck, and on which ranks; `fired` as `unfired` has it."""
    found = []
    for index, fault in enumerate(plan.faults):
        ranks = [rank for rank, counts in enumerate(fired) if sum(counts[index : index + 1])]
        if ranks:
            found.append((fault, ranks))
    return found


def unfired(plan: Plan, fired: Sequence[Sequence[int]], ledgers: Sequence[LedgerView]) -> list[str]:
    """One message per fault of `plan` that struck no rank it is meant for.

    `fired` holds each rank's counts of strikes by fault, `ledgers` each rank's records, both by rank. A fault for
    every rank has fired if it struck at least one.
    """
    missed = []
    for index, fault in enumerate(plan.faults):
        ranks = range(len(fired)) if fault.where.rank is None else [fault.where.rank]
        if not any(rank < len(fired) and sum(fired[rank][index : index + 1]) for rank in ranks):
            missed.append(_explain(fault, ranks, ledgers))
    return missed


def _explain(fault: Fault, ranks: Sequence[int], ledgers: Sequence[LedgerView]) -> str:
    # For a fault on every rank, the rank that came closest says most.
    taken = {rank: ledgers[rank] if rank < len(ledgers) else LedgerView() for rank in ranks}
    rank = max(taken, key=lambda rank: (_matching(fault, taken[rank]), -rank), default=0)
    view = taken.get(rank, LedgerView())
    count = _matching(fault, view)
    who = f"rank {rank}" if fault.where.rank is not None else f"no rank did; rank {rank}"
    return f"{fault} did not fire: {_why(fault, who, count, view)}; {_steps(rank, view)}"


def _why(fault: Fault, who: str, count: int, view: LedgerView) -> str:
    if view.dropped:
        return f"{who} took more steps than its ledger keeps ({view.dropped} are lost)"
    if count == 0:
        return f"{who} took no such step"
    if fault.where.nth is not None and count < fault.where.nth:
        return f"{who} took only {count} such step{'s' if count > 1 else ''}"
    steps = f"{count} such steps" if count > 1 else "1 such step"
    enough = "none" if fault.where.nth in (None, 1) else f"fewer than {fault.where.nth}"
    return f"{who} took {steps}, at {enough} of which {fault.what.name} could change anything"


def _matching(fault: Fault, view: LedgerView) -> int:
    return sum(fault.where.matches(record.step, _second_name(record.step.fingerprint)) for record in view)


def _second_name(fingerprint: str) -> str:
    return fingerprint.removeprefix("to ") if fingerprint.startswith("to ") else ""


def _steps(rank: int, view: LedgerView) -> str:
    names = [record.step.name for record in view]
    if not names:
        return f"rank {rank} took no step at all"
    runs = [(name, len(list(run))) for name, run in groupby(names)]
    shown = [f"{name} x{count}" if count > 1 else name for name, count in runs]
    if len(shown) > MAX_LISTED:
        totals = Counter(names)
        shown = [f"{name} x{count}" if count > 1 else name for name, count in totals.most_common(MAX_LISTED)]
        more = len(totals) - len(shown)
        others = f" and {more} other op{'s' if more > 1 else ''}" if more > 0 else ""
        return f"rank {rank} took {len(names)} steps: {', '.join(shown)}{others}"
    return f"the steps rank {rank} did take: {', '.join(shown)}"
