"""An explanation as fields; `docs/explain.md` says what each is."""

from __future__ import annotations

from typing import Any

from rankdrill.diagnosis.as_json import finding_as_fields
from rankdrill.explain.explanation import Cause, Explanation

__all__ = ["FORMAT", "VERSION", "explanation_as_fields"]

FORMAT = "rankdrill explain"
VERSION = 1


def explanation_as_fields(explanation: Explanation) -> dict[str, Any]:
    """The document's fields but for those of the run of rankdrill that wrote it."""
    return {
        "source": explanation.source,
        "world_size": explanation.world_size,
        "culprits": list(explanation.culprits),
        "victims": list(explanation.victims),
        "causes": [_cause(cause) for cause in explanation.causes],
        "fits": list(explanation.fits),
        "places": [{"ranks": list(place.ranks), "doing": place.doing} for place in explanation.places],
        "gaps": list(explanation.gaps),
        "runs": list(explanation.runs),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {
        "finding": finding_as_fields(cause.finding),
        "confidence": str(cause.confidence),
        "why": list(cause.why),
    }
