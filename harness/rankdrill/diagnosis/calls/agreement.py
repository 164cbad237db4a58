"""Ranks that meet in the same place of a group and do different things there: calls that no backend can complete."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.diagnosis.waits import Wait, name_ranks
from rankdrill.ledger import LedgerView
from rankdrill.step import NO_SEQUENCE, Step

__all__ = ["odd_ones"]

_ALIKE = frozenset({"all_reduce", "broadcast", "reduce", "barrier"})  # here shapes and dtypes must be equal too
_ROOT = re.compile(r"\broot=\d+")


def odd_ones(waits: Mapping[int, Wait], views: Sequence[LedgerView]) -> dict[int, str]:
    """The ranks whose call differs from that of most others at a step where `waits` wait, each with both calls.

    `views` are the ledgers of all ranks. Where no call has a majority every rank is named.
    """
    found: dict[int, str] = {}
    for group, sequence in {(wait.record.step.target, wait.record.step.sequence) for wait in waits.values()}:
        if sequence == NO_SEQUENCE:
            continue
        steps = {rank: step for rank, view in enumerate(views) if (step := calls_on(group, view).get(sequence))}
        kinds: dict[str, list[int]] = {}
        for rank, step in steps.items():
            kinds.setdefault(_agreed(step), []).append(rank)
        if len(kinds) < 2:
            continue
        first, second = sorted(kinds.values(), key=len, reverse=True)[:2]
        for rank, step in steps.items():
            if len(first) == len(second) or rank not in first:
                other = first if rank not in first else second
                found[rank] = f"is in {step}, {name_ranks(other)} in {steps[other[0]]}"
    return found


def _agreed(step: Step) -> str:
    """What all ranks must have in common there, as text."""
    if step.op in _ALIKE:
        return f"{step.op} {step.fingerprint}"
    root = _ROOT.search(step.fingerprint)
    return f"{step.op} {root[0] if root else ''}"
