"""How one rank's run ended, as its supervision hears of it."""

from __future__ import annotations

from dataclasses import dataclass

from rankdrill.worlds.processes.messages import NO_ACCOUNT, Account
from rankdrill.worlds.rank_outcome import RankOutcome

__all__ = ["Ending"]


@dataclass(frozen=True)
class Ending:
    """How one rank's run ended: the outcome, as yet without what the rank printed and wrote down, and its account."""

    outcome: RankOutcome
    account: Account = NO_ACCOUNT
