"""The scores of all ranks, on all ranks."""

from scoreboard.gather import best, gather_scores

__all__ = ["best", "gather_scores"]
