"""How one rank's run ended, as its supervision hears of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rankdrill.worlds.processes.messages import NO_ACCOUNT, Account
from rankdrill.worlds.rank_outcome import RankOutcome

__all__ = ["Ending", "pending_messages"]


@dataclass(frozen=True)
class Ending:
    """How one rank's run ended: the outcome, as yet without what the rank printed and wrote down, and its account."""

    outcome: RankOutcome
    account: Account = NO_ACCOUNT


def pending_messages(endings: Iterable[Ending]) -> bool:
    """Whether messages have been sent that nobody has received, or the other way round."""
    return sum(ending.account.messages or 0 for ending in endings) % (1 << 64) != 0
