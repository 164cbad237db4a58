"""Errors that a library raises on all ranks because some of them failed: who did, and with what.

`torch.distributed.checkpoint` gathers what each rank raised, and raises `CheckpointException` on all of them, whose
`failures` have it by rank of the group (torch 2.6 to 2.13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankdrill.diagnosis.groups import members_in
from rankdrill.step import Kind

if TYPE_CHECKING:
    from rankdrill.ledger import LedgerView

__all__ = ["failed_together"]

_TYPE, _MODULE = "CheckpointException", "torch.distributed.checkpoint.api"


def failed_together(error: BaseException | None, ledger: LedgerView) -> dict[int, str]:
    """Global ranks that failed, as `error` tells the rank of that `ledger`, each with its own error; else nothing."""
    kind = type(error)
    failures = getattr(error, "failures", None)
    if (kind.__name__, kind.__module__) != (_TYPE, _MODULE) or not isinstance(failures, Mapping):
        return {}
    members = _of_the_last_call(ledger)
    told = {rank: _words(failure[0]) for rank, failure in failures.items()}
    return {members[rank] if rank < len(members) else rank: words for rank, words in told.items()}


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _of_the_last_call(ledger: LedgerView) -> tuple[int, ...]:
    """The members of the group by which the errors came; nothing of the default group, or where nobody can say."""
    last = next((record for record in reversed(ledger.records) if record.step.kind is Kind.COLLECTIVE), None)
    return members_in(ledger).get(last.step.target, ()) if last is not None else ()
