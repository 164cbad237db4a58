"""What a plan itself did to a rank: a process that it ended is gone because that was asked for."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rankdrill.worlds.rank_outcome import RankOutcome, Status

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["BENDING", "STOP", "all_fired", "as_planned", "bends_calls", "ending_strikes", "struck_by"]

STOP = frozenset({"stop"})
BENDING = frozenset({"skip", "extra", "swap", "wrong_shape", "wrong_dtype", "wrong_op", "wrong_root"})
_SLEEPS = frozenset({"delay", "hold_gil", "late"})


def bends_calls(plan: Plan | None) -> bool:
    """Whether `plan` has ranks give a collective what does not go together, and lets none of them sleep in one."""
    names = {fault.what.name for fault in plan.faults} if plan is not None else set()
    return bool(names & BENDING) and not names & _SLEEPS


def ending_strikes() -> frozenset[str]:
    """The strikes after which a rank does nothing more."""
    from rankdrill.faults import STRIKES

    return STOP | {name for name, strike in STRIKES.items() if not strike.survivable}


def struck_by(plan: Plan | None, fired: Sequence[int], names: Container[str]) -> bool:
    """Whether one of the strikes `names` is among those that have struck; `fired` counts strikes by fault."""
    if plan is None:
        return False
    return any(count and fault.what.name in names for fault, count in zip(plan.faults, fired, strict=False))


def all_fired(ranks: Sequence[RankOutcome], first: int) -> bool:
    """Whether each of the plan's `first` faults has struck on some rank."""
    return all(any(rank.fired[fault : fault + 1] > (0,) for rank in ranks) for fault in range(first))


def as_planned(plan: Plan | None, ranks: Sequence[RankOutcome]) -> tuple[RankOutcome, ...]:
    """`ranks`, those marked whose process a planned fault ended or stopped."""
    if plan is None:
        return tuple(ranks)
    ending = ending_strikes()
    return tuple(
        replace(rank, by_plan=rank.status in (Status.DIED, Status.STUCK) and struck_by(plan, rank.fired, ending))
        for rank in ranks
    )
