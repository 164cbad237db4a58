"""How tests call the gather, what befalls it, and where their data lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scoreboard import gather_scores

from rankdrill.conformance import Setting

__all__ = ["LOST", "recorded", "to_all"]

LOST = "rank 1: kill before collective.all_gather #1"
"""A rank that is gone between the sizes and the scores."""

_FIXTURES = Path(__file__).parents[2] / "fixtures"


def to_all(scores: dict[str, Any], at: Setting) -> list[dict[str, Any]]:
    """The gather as rankdrill's conformance kit calls it."""
    return gather_scores(scores, at.group)


def recorded() -> list[dict[str, float]]:
    """The scores of a run, by rank."""
    scores: list[dict[str, float]] = json.loads((_FIXTURES / "scores.json").read_text())
    return scores
