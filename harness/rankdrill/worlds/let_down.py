"""Ranks whose connection broke, or that gave up, in what another one never came to: as if they waited for it still."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rankdrill.diagnosis import Finding, cause_of_hang, waits
from rankdrill.diagnosis.progress import position
from rankdrill.diagnosis.waits import hopeless
from rankdrill.step import Kind
from rankdrill.worlds.suffering import lost_another

if TYPE_CHECKING:
    from rankdrill.ledger import LedgerView
    from rankdrill.worlds.rank_outcome import RankOutcome

__all__ = ["let_down"]


def let_down(ranks: Sequence[RankOutcome]) -> Finding | None:
    """What is wrong where all that raised only lost others, in a call that would wait for ever.

    A rank that leaves closes its connections, by `destroy_process_group` say: whoever waits for it is told of these and
    not of the call that it left out. None where one that raised would not wait for ever, as others had come.
    """
    views = list(_as_they_waited(ranks))
    if len(views) < len(ranks):
        return None
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    found = waits([position(view, ended=rank in returned) for rank, view in enumerate(views)])
    lost = hopeless(found, ())
    if lost.keys() | returned != {rank.rank for rank in ranks}:
        return None
    return cause_of_hang(lost, returned, views)


def _as_they_waited(ranks: Sequence[RankOutcome]) -> Iterator[LedgerView]:
    """The ledgers, of those that raised as if they were in that call still; fewer where one has trouble of its own."""
    for rank in ranks:
        last = rank.ledger.last_raised
        if rank.status == "returned" or (rank.status == "stuck" and rank.wait is not None):
            yield rank.ledger
        elif last is not None and last.step.kind is Kind.COLLECTIVE and lost_another(rank.error):
            yield rank.ledger.reopened(last)
