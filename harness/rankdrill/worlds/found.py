"""What is wrong with a whole run, where that can be said in one finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rankdrill.diagnosis import (
    Finding,
    Wait,
    crossed_groups,
    left_behind,
    lost_message,
    retold,
    unmatched_message,
    wrong_group,
)
from rankdrill.step import NO_SEQUENCE

if TYPE_CHECKING:
    from rankdrill.worlds.outcome import RankOutcome

__all__ = ["finding_on"]


def finding_on(ranks: Sequence[RankOutcome]) -> Finding | None:
    """The finding on a run that did not end well; None where ranks have to speak for themselves."""
    views = [rank.ledger for rank in ranks]
    waits = {rank.rank: rank.wait for rank in ranks if rank.wait is not None}
    noticed = next((rank.finding for rank in ranks if rank.finding is not None), None)
    if noticed is not None:
        undecided = noticed.number != NO_SEQUENCE and not noticed.culprits
        return (wrong_group(waits, views, noticed) if undecided else None) or retold(noticed, views)
    # What a plan leads to is no finding; who raised, died or just went on has more to say than who waits for it.
    if any(any(rank.fired) or rank.status in ("died", "raised") or _runs(rank) for rank in ranks):
        return None
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return (
        lost_message(waits, views)
        or _unmatched(waits, ranks)
        or crossed_groups(waits, views)
        or wrong_group(waits, views, None)
        or left_behind(waits, returned, views)
    )


def _runs(rank: RankOutcome) -> bool:
    return rank.status == "stuck" and rank.wait is None and not rank.cut


def _unmatched(waits: Mapping[int, Wait], ranks: Sequence[RankOutcome]) -> Finding | None:
    # One that has issued a message, and is in no step, may be anywhere.
    waits = {rank: wait for rank, wait in waits.items() if wait.record.state.open}
    if not waits:
        return None
    returned = {rank.rank for rank in ranks if rank.status == "returned"}
    return unmatched_message(waits, {rank.rank: rank.ledger for rank in ranks}, returned)
