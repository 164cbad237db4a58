"""Who runs the ranks, and what became of them."""

from rankdrill.worlds.death import Death
from rankdrill.worlds.outcome import Outcome, Verdict
from rankdrill.worlds.rank_outcome import RankOutcome, Status
from rankdrill.worlds.world import Begun, World, check_world, start_template

__all__ = [
    "Begun",
    "Death",
    "Outcome",
    "RankOutcome",
    "Status",
    "Verdict",
    "World",
    "check_world",
    "start_template",
]
