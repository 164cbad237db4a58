"""The results of a drill as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rankdrill.conformance.case import CaseResult
from rankdrill.conformance.kit.answers import Answer
from rankdrill.report.tally import Tally

__all__ = ["SCHEMA", "drill_as_json"]

SCHEMA = 1


def drill_as_json(tally: Tally, *, elapsed: float, complete: bool, answers: Sequence[Answer] = ()) -> str:
    """Everything the drill found; `complete` is false where it was interrupted."""
    kept = not any(answer.failed for answer in answers)
    document = {
        "schema": SCHEMA,
        "ok": (tally.ok if tally.results else bool(answers)) and kept and complete,
        "complete": complete,
        "elapsed_s": round(elapsed, 3),
        "counts": {str(judgement): count for judgement, count in tally.counts.items()},
        "cases": [_case(result) for result in tally.results],
        "answers": [_answer(answer) for answer in answers],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "path": answer.path,
        "promise": str(answer.question.promise),
        "question": answer.question.id,
        "promised": answer.promised,
        "complaint": answer.complaint,
        "elapsed_s": round(answer.elapsed, 4),
        "repeat": answer.repeat,
    }


def _case(result: CaseResult) -> dict[str, Any]:
    return {
        **asdict(result.case),
        "judgement": str(result.judgement),
        "passed": result.passed,
        "why": result.why,
        "ranks": list(result.ranks),
        "evidence": list(result.evidence),
        "elapsed_s": round(result.elapsed, 4),
        "waited_s": round(result.waited, 4),
        "repeat": result.case.repeat,
    }
