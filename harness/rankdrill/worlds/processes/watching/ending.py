"""How one rank's run ended, as its supervision hears of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rankdrill.diagnosis import LeftGroups, Unwaited
from rankdrill.diagnosis.races.taken import Taken
from rankdrill.worlds.rank_outcome import RankOutcome

__all__ = ["Ending", "pending_messages"]


@dataclass(frozen=True)
class Ending:
    """How one rank's run ended: the outcome, as yet without what the rank printed and wrote down.

    `collectives` is how many it has issued on the default group, `groups` how many it has made from that; -1 where it
    could not say. `unwaited` is what nobody waited for, `left_groups` what it made again and again and left. `messages`
    is its tally of them, None where the body goes on. `updates` is how often it has set a key of a store that it had
    got before, `taken` where several have answered to a receive from anybody.
    """

    outcome: RankOutcome
    collectives: int = -1
    groups: int = -1
    unwaited: tuple[Unwaited, ...] = ()
    left_groups: tuple[LeftGroups, ...] = ()
    messages: int | None = None
    updates: int = 0
    taken: tuple[Taken, ...] = ()


def pending_messages(endings: Iterable[Ending]) -> bool:
    """Whether messages have been sent that nobody has received, or the other way round."""
    return sum(ending.messages or 0 for ending in endings) % (1 << 64) != 0
