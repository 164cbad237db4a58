"""The results of a drill as a page: the matrix, and behind each cell its cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankdrill.conformance.case import CaseResult, Judgement
from rankdrill.conformance.kit.answers import Answer
from rankdrill.report.page import Strings, page
from rankdrill.report.tally import Tally

__all__ = ["drill_as_html"]


def drill_as_html(tally: Tally, *, elapsed: float, complete: bool, answers: Sequence[Answer] = ()) -> str:
    """Everything the drill found, to look at in a browser; `complete` is false where it was interrupted."""
    strings = Strings()
    cases = [_case(result, tally, strings) for result in tally.results]
    broken = [answer for answer in answers if answer.failed]
    data = {
        "elapsed": round(elapsed, 1),
        "complete": complete,
        "ok": (tally.ok if tally.results else bool(answers)) and not broken and complete,
        "failed": len(tally.failures) + len(broken),
        "paths": tally.paths,
        "strikes": tally.strikes,
        "judgements": [
            {"name": str(each), "passed": each.passed, "severity": each.severity, "means": MEANINGS[each]}
            for each in Judgement
        ],
        "cases": cases,
        "answers": [_answer(answer, strings) for answer in answers],
        "strings": strings.table,
    }
    return page("rankdrill drill", "drill.js", data)


def _answer(answer: Answer, strings: Strings) -> dict[str, Any]:
    return {
        "path": answer.path,
        "promise": str(answer.question.promise),
        "promised": answer.promised,
        "name": strings.number(answer.question.id),
        "complaint": strings.number(answer.complaint),
        "repeat": strings.number(answer.repeat),
    }


def _case(result: CaseResult, tally: Tally, strings: Strings) -> dict[str, Any]:
    case, number = result.case, strings.number
    return {
        "path": tally.paths.index(case.path),
        "strike": tally.strikes.index(case.strike),
        "judgement": result.judgement.severity,
        "name": number(case.name),
        "why": number(result.why),
        "repeat": number(case.repeat),
        "elapsed": round(result.elapsed, 3),
        "struck": case.rank,
        "ranks": [number(line) for line in result.ranks],
        "evidence": [number(line) for line in result.evidence],
        "tales": [
            {"sent": number(tale.sent), "came": number(tale.came), "steps": [number(step) for step in tale.steps]}
            for tale in result.tales
        ],
    }


MEANINGS = {
    Judgement.RIGHT: "every rank received the right result",
    Judgement.TOGETHER: "every rank raised the same error, naming the rank that was struck, and the next call worked",
    Judgement.UNFIRED: "the fault found no step to strike: the case shows nothing",
    Judgement.UNNAMED: "every rank raised, but the error does not name the rank that was struck",
    Judgement.LEAKED: "right or together, but files, segments, descriptors or threads were left",
    Judgement.SPENT: "the next call failed",
    Judgement.ASYMMETRIC: "some ranks raised and others returned, or they raised different errors",
    Judgement.DIED: "a rank died that the fault had let live",
    Judgement.HANG: "a rank was still in the call at the deadline",
    Judgement.WRONG: "a rank received something else than it should, and no error",
    Judgement.BROKEN: "the drill itself, or the adapter, failed",
}
