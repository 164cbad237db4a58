"""What is wrong with a whole run, where that can be said in one finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rankdrill.diagnosis import Finding, Wait, crossed_groups, unmatched_message

if TYPE_CHECKING:
    from rankdrill.worlds.outcome import RankOutcome

__all__ = ["finding_on"]


def finding_on(ranks: Sequence[RankOutcome]) -> Finding | None:
    """The finding on a run that did not end well; None where ranks have to speak for themselves."""
    noticed = next((rank.finding for rank in ranks if rank.finding is not None), None)
    if noticed is not None or any(rank.status in ("died", "raised") for rank in ranks):
        return noticed
    waits = {rank.rank: rank.wait for rank in ranks if rank.wait is not None}
    return _unmatched(waits, ranks) or crossed_groups(waits)


def _unmatched(waits: Mapping[int, Wait], ranks: Sequence[RankOutcome]) -> Finding | None:
    # One that has issued a message, and is in no step, may be anywhere.
    waits = {rank: wait for rank, wait in waits.items() if wait.record.state.open}
    if not waits or any(any(rank.fired) for rank in ranks):
        return None  # what a plan leads to is no finding
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return unmatched_message(waits, {rank.rank: rank.ledger for rank in ranks}, returned)
