"""Reports beside those of the phases, of subtests say: logged on each rank, told once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rankdrill.plugin.ends import COUNTED
from rankdrill.plugin.merge import RUN_AGAIN
from rankdrill.plugin.pytest_seam import count_failed_subtest
from rankdrill.plugin.shown import MergedFailure
from rankdrill.worlds.told import minority_first, share_alike

__all__ = ["tell_subreports"]

_ABOUT = ("$report_type", "_report_type", "_subtest.context", "when")
"""The fields of a serialized report that say what it is about: alike on all ranks."""


def tell_subreports(
    item: pytest.Item, logged: Iterable[tuple[int, dict[str, Any]]], where: tuple[str, int], run_again: str
) -> list[tuple[str, list[int]]]:
    """Log one report for what each rank logged of the same thing; `logged` has serialized ones by rank, in order;
    `run_again` is the command that repeats the test.

    Returns of those that failed the headline and the ranks.
    """
    failed: list[tuple[str, list[int]]] = []
    merged: dict[tuple[Any, ...], dict[int, pytest.TestReport]] = {}
    counts: dict[tuple[int, str], int] = {}
    counted: set[tuple[Any, ...]] = set()
    for rank, data in logged:
        about = repr([data.get(name) for name in _ABOUT])
        turn = counts[rank, about] = counts.get((rank, about), 0) + 1
        if data.pop(COUNTED, False):
            counted.add((about, turn))
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        if report is not None:
            merged.setdefault((about, turn), {})[rank] = report
    for key, reports in merged.items():
        failing = [rank for rank, report in reports.items() if report.failed]
        report = _one_of(reports, where)
        if isinstance(report.longrepr, MergedFailure):
            report.longrepr.sections.append((RUN_AGAIN, run_again))
            failed.append((report.longrepr.headline, failing))
        if report.failed and key in counted:
            count_failed_subtest(item)
        item.ihook.pytest_runtest_logreport(report=report)
    return failed


def _one_of(reports: dict[int, pytest.TestReport], where: tuple[str, int]) -> pytest.TestReport:
    failed = {rank: report for rank, report in reports.items() if report.failed}
    kinds: dict[str, list[int]] = {}
    for rank, report in sorted(reports.items()):
        word = f"x{'failed' if report.skipped else 'passed'}" if hasattr(report, "wasxfail") else report.outcome
        kinds.setdefault(word, []).append(rank)
    if failed:
        one = failed[min(failed)]
        blocks = list(share_alike((rank, _what(report), report.longreprtext) for rank, report in failed.items()))
        one.longrepr = MergedFailure(blocks[0].heading, blocks, (), where)
    elif len(kinds) > 1:
        one = reports[min(reports)]
        if hasattr(one, "wasxfail"):
            del one.wasxfail
        one.outcome = "failed"
        one.longrepr = MergedFailure(f"ranks disagree: {minority_first(kinds)}", (), (), where)
    else:
        return reports[min(reports)]
    one.sections = [
        (f"{title} of rank {rank}", text) for rank, report in reports.items() for title, text in report.sections
    ]
    return one


def _what(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return f"failed: {next(iter(text.splitlines()), 'no reason given')}"
