"""Who runs the ranks, and what became of them."""

from rankdrill.worlds.outcome import Death, Outcome, RankOutcome, Status, Verdict
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
