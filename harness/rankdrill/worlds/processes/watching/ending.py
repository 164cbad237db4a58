"""How one rank's run ended, as its supervision hears of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rankdrill.worlds.processes.messages import NO_ACCOUNT, Account
from rankdrill.worlds.rank_outcome import RankOutcome, Status

__all__ = ["Ending", "at_one"]


@dataclass(frozen=True)
class Ending:
    """How one rank's run ended: the outcome, as yet without what the rank printed and wrote down, and its account."""

    outcome: RankOutcome
    account: Account = NO_ACCOUNT


def at_one(endings: Collection[Ending]) -> bool:
    """Whether all ranks returned with one and the same account, in which nothing may be wrong: so most runs end."""
    first = next(iter(endings)).account
    return first.quiet and all(
        ending.outcome.status is Status.RETURNED and ending.account == first for ending in endings
    )
