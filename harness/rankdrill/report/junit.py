"""The results of a drill as JUnit XML: one suite per path, one test case per case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from rankdrill.conformance.case import CaseResult
from rankdrill.conformance.kit.answers import Answer
from rankdrill.report.tally import Tally

__all__ = ["drill_as_junit"]

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def drill_as_junit(tally: Tally, *, elapsed: float, answers: Sequence[Answer] = ()) -> str:
    """An XML document that CI servers read: a suite per path, and one per path that was asked for its promises."""
    root = ElementTree.Element("testsuites", name="rankdrill drill", time=f"{elapsed:.3f}")
    failures = sum(not result.passed for result in tally.results) + sum(answer.failed for answer in answers)
    _count(root, len(tally.results) + len(answers), failures)
    for path in dict.fromkeys(answer.path for answer in answers):
        _asked(root, [answer for answer in answers if answer.path == path])
    for path in tally.paths:
        results = tuple(result for result in tally.results if result.case.path == path)
        suite = ElementTree.SubElement(root, "testsuite", name=path)
        suite.set("time", f"{sum(result.elapsed for result in results):.3f}")
        _count(suite, len(results), sum(not result.passed for result in results))
        for result in results:
            _test_case(suite, result)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _asked(root: ElementTree.Element, answers: Sequence[Answer]) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=f"{answers[0].path}: what it promises")
    suite.set("time", f"{sum(answer.elapsed for answer in answers):.3f}")
    _count(suite, len(answers), sum(answer.failed for answer in answers))
    for answer in answers:
        name, seconds = _clean(answer.name), f"{answer.elapsed:.3f}"
        case = ElementTree.SubElement(suite, "testcase", classname=answer.path, name=name, time=seconds)
        if answer.failed:
            message = _clean(answer.complaint.splitlines()[0])
            failure = ElementTree.SubElement(case, "failure", type=str(answer.question.promise), message=message)
            failure.text = _clean(f"{answer.complaint}\nagain: {answer.repeat}")


def _count(element: ElementTree.Element, tests: int, failures: int) -> None:
    element.set("tests", str(tests))
    element.set("failures", str(failures))
    element.set("errors", "0")


def _test_case(suite: ElementTree.Element, result: CaseResult) -> None:
    name, seconds = _clean(result.case.name), f"{result.elapsed:.3f}"
    case = ElementTree.SubElement(suite, "testcase", classname=result.case.path, name=name, time=seconds)
    if result.passed:
        return
    failure = ElementTree.SubElement(case, "failure", type=str(result.judgement), message=_clean(result.why))
    lines = (*result.ranks, *result.evidence, f"again: {result.case.repeat}")
    failure.text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    # XML 1.0 has no place for control characters, and errors may quote anything.
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
