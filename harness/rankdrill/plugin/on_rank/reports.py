"""From pytest's reports on a rank to what travels."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rankdrill.boundary.callsites import raise_site
from rankdrill.plugin.commands import When
from rankdrill.plugin.ends import Ended, PhaseEnd, passed
from rankdrill.worlds.job import dump_error
from rankdrill.worlds.processes.state import drawn_since

__all__ = ["Told", "end_of", "failed"]

_STRICT = "[XPASS(strict)]"  # how pytest begins what it says of a test that should have failed
_SKIPPED = "Skipped: "


class Told:
    """What earlier phases have told already: reports repeat the sections and properties of those before."""

    def __init__(self) -> None:
        self.sections = 0
        self.properties = 0


def end_of(
    report: pytest.TestReport,
    call: pytest.CallInfo[Any],
    more: list[dict[str, Any]],
    told: Told,
    figures: tuple[dict[str, Any], ...] = (),
    seed: int | None = None,
    shared: str = "",
) -> PhaseEnd:
    """How the phase that `report` is about, made of `call`, ended. `seed` is the rank's own, if it has one; `shared` is
    the directory it shares with the others.
    """
    when, excinfo = _when(report.when), call.excinfo
    sections, properties = report.sections[told.sections :], report.user_properties[told.properties :]
    told.sections, told.properties = len(report.sections), len(report.user_properties)
    ended, reason = _ended(report, excinfo)
    if ended is Ended.PASSED and not (sections or properties or more or figures):
        return passed(when, call.duration)
    marked = ended is Ended.XFAILED and excinfo is not None and not isinstance(excinfo.value, pytest.xfail.Exception)
    text = crash = ""
    error = b""
    if ended is Ended.FAILED or marked:
        text = report.longreprtext
        crash = excinfo.exconly(tryshort=True) if excinfo is not None else _first_line(text)
        error = dump_error(excinfo.value) if excinfo is not None else b""
    return PhaseEnd(
        when,
        ended,
        reason,
        text or crash,
        crash,
        error,
        marked,
        ended is Ended.XPASSED and report.failed,
        tuple((str(title), str(content)) for title, content in sections),
        tuple(properties),
        tuple(more),
        seconds=call.duration,
        figures=figures,
        site=raise_site(excinfo.tb) if excinfo is not None else None,
        drew=ended is Ended.FAILED and seed is not None and _compared(excinfo) and drawn_since(seed),
        met=ended is Ended.FAILED and excinfo is not None and _is_there(excinfo.value, shared),
    )


def failed(when: When, excinfo: pytest.ExceptionInfo[BaseException], text: str = "") -> PhaseEnd:
    """A phase that ended with an exception of which pytest made no report."""
    shown = text or str(excinfo.getrepr())
    crash, error = excinfo.exconly(tryshort=True), dump_error(excinfo.value)
    return PhaseEnd(when, Ended.FAILED, "", shown, crash, error, site=raise_site(excinfo.tb))


def _compared(excinfo: pytest.ExceptionInfo[BaseException] | None) -> bool:
    """Whether it failed by an assertion, of values that are not alike, maybe: other errors come by no random number."""
    return excinfo is None or isinstance(excinfo.value, AssertionError | pytest.fail.Exception)


def _is_there(error: BaseException | None, directory: str) -> bool:
    """Whether `error`, or one that led to it, is that something is in `directory` already."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, FileExistsError) and _is_below(error.filename2 or error.filename, directory):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_below(path: object, directory: str) -> bool:
    return isinstance(path, str) and bool(directory) and os.path.abspath(path).startswith(os.path.join(directory, ""))


def _when(when: Any) -> When:
    assert when in ("setup", "call", "teardown")
    found: When = when
    return found


def _ended(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException] | None) -> tuple[Ended, str]:
    expected = getattr(report, "wasxfail", None)
    if report.skipped:
        if expected is not None:
            return Ended.XFAILED, str(expected)
        longrepr: Any = report.longrepr
        told = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        return Ended.SKIPPED, str(told).removeprefix(_SKIPPED)
    if report.passed:
        return (Ended.PASSED, "") if expected is None else (Ended.XPASSED, str(expected))
    if excinfo is None and str(report.longrepr).startswith(_STRICT):
        return Ended.XPASSED, str(report.longrepr).removeprefix(_STRICT).strip()
    return Ended.FAILED, ""


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "failed")
