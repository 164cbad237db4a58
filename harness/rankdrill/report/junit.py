"""The results of a drill as JUnit XML: one suite per path, one test case per case."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from rankdrill.conformance.case import CaseResult
from rankdrill.report.tally import Tally

__all__ = ["drill_as_junit"]

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def drill_as_junit(tally: Tally, *, elapsed: float) -> str:
    """An XML document that CI servers read."""
    root = ElementTree.Element("testsuites", name="rankdrill drill", time=f"{elapsed:.3f}")
    _count(root, tally.results)
    for path in tally.paths:
        results = tuple(result for result in tally.results if result.case.path == path)
        suite = ElementTree.SubElement(root, "testsuite", name=path)
        suite.set("time", f"{sum(result.elapsed for result in results):.3f}")
        _count(suite, results)
        for result in results:
            _test_case(suite, result)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _count(element: ElementTree.Element, results: tuple[CaseResult, ...]) -> None:
    element.set("tests", str(len(results)))
    element.set("failures", str(sum(not result.passed for result in results)))
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
