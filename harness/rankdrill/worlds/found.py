"""What is wrong with a whole run, where that can be said in one finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankdrill.diagnosis import Finding, crossed_groups, lost_message

if TYPE_CHECKING:
    from rankdrill.worlds.outcome import RankOutcome

__all__ = ["finding_on"]


def finding_on(ranks: Sequence[RankOutcome]) -> Finding | None:
    """The finding on a run that did not end well; None where ranks have to speak for themselves."""
    noticed = next((rank.finding for rank in ranks if rank.finding is not None), None)
    if noticed is not None or any(rank.status in ("died", "raised") for rank in ranks):
        return noticed
    waits = {rank.rank: rank.wait for rank in ranks if rank.wait is not None}
    return crossed_groups(waits) or lost_message(waits, [rank.ledger for rank in ranks])
