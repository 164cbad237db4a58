"""Who has come to make a group too early: it left out what the others are still in, and they will come there, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rankdrill.diagnosis.calls.groups_left_out import makes_group
from rankdrill.diagnosis.calls.passed import gone_past
from rankdrill.diagnosis.finding import Finding, FindingKind
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView
from rankdrill.step import NO_SEQUENCE

__all__ = ["early_to_a_group"]


def early_to_a_group(
    waits: Mapping[int, Wait], returned: Collection[int], views: Sequence[LedgerView]
) -> Finding | None:
    """The collective that those have left out who wait in ``new_group`` for more ranks, which wait for them there; None
    where they have not, as far as is known: it is one group more then, or somebody's that was left out.
    """
    making = {rank: wait for rank, wait in waits.items() if makes_group(wait) and wait.missing}
    away = sorted({rank for wait in making.values() for rank in wait.missing})
    if not making or len(away) <= len(making):
        return None
    for rank in away:
        wait = waits.get(rank)
        if wait is None or wait.record.step.sequence == NO_SEQUENCE or making.keys().isdisjoint(wait.missing):
            continue
        found = gone_past(wait, making[min(making)], waits, returned, views)
        if found is not None and found.kind is FindingKind.MISSING and {*found.culprits} == making.keys():
            return found
    return None
