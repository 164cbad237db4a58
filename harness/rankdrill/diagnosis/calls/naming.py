"""What a call is called in findings: by what the user called there, and in which backward pass it was."""

from __future__ import annotations

from rankdrill.diagnosis.calls.sequences import calls_on
from rankdrill.ledger import LedgerView
from rankdrill.step import DDP_BUCKET, Step

__all__ = ["in_pass", "named"]

_FIRST = f"{DDP_BUCKET}0"


def named(step: Step) -> str:
    """``all_gather_object's all_gather #3 on 'default'``, ``DDP bucket 0's all_reduce #8 on 'default'``."""
    via = step.site.via if step.site is not None else ""
    return f"{via}'s {step.call}" if via and via != step.op else step.call


def in_pass(step: Step, view: LedgerView) -> str:
    """``, in backward pass 4``, the fourth of this run, if DistributedDataParallel called it and `view` tells."""
    if step.site is None or not step.site.via.startswith(DDP_BUCKET) or view.dropped:
        return ""
    calls = calls_on(step.target, view)
    if calls.get(step.sequence) != step:
        return ""
    passes = sum(
        number <= step.sequence and call.site is not None and call.site.via == _FIRST for number, call in calls.items()
    )
    return f", in backward pass {passes}" if passes else ""
