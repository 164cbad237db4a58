"""``--rankdrill-json FILE``: what came of each test on ranks, for machines. `docs/json.md` gives the format."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.outputs import check_output, write_whole

if TYPE_CHECKING:
    from rankdrill.plugin.item import RankedItem
    from rankdrill.worlds import Outcome

__all__ = ["FORMAT", "VERSION", "JsonFile", "attach", "write_json"]

FORMAT = "rankdrill tests"
VERSION = 1
"""Rises when a field is taken away or means something else; fields may be added to any version."""
_OPTION = "--rankdrill-json"
_ATTACHED = "rankdrill_json"
"""The attribute of a report; text, which every plugin that sends reports elsewhere can send."""
_SUBTESTS = "failed_subtests"
_THROUGH = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def write_json(config: pytest.Config, seed: int) -> None:
    """Have this session write the file that it is asked for, if it is; refused now where it could not be written.

    Workers of pytest-xdist write none: their reports reach the session that has started them.
    """
    name = config.getoption("rankdrill_json")
    if name is None or hasattr(config, "workerinput"):
        return
    try:
        path = check_output(_OPTION, name)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(JsonFile(config, path, name, seed), "rankdrill-json")


def attach(item: RankedItem, report: pytest.TestReport) -> None:
    """Have `report`, of one phase of `item`, say for machines what the ranks did in it."""
    outcome = item.told.get(report.when)
    fields = {
        "nodeid": item.nodeid,
        "phase": report.when,
        "message": _message(report),
        _SUBTESTS: item.failed_subtests.get(report.when, []),
        "world_size": item.size,
        "seed": item.shared.seed,
        "run_again": item.run_again.splitlines()[0],
        **_of_ranks(outcome),
        "elapsed_s": round(report.duration, 4),
    }
    setattr(report, _ATTACHED, json.dumps(fields))


def _of_ranks(outcome: Outcome | None) -> dict[str, Any]:
    """The fields of a run; those of a test that came to none say that there is nothing to say."""
    from rankdrill.plugin.merge import end_of

    if outcome is None:
        nothing: dict[str, Any] = dict.fromkeys(("verdict", "summary", "harness"))
        return nothing | {name: [] for name in ("culprits", "victims", "findings", "ranks", "unfired")}
    fields = outcome.as_fields()
    del fields["ok"]  # that is for pytest to say: a test may expect what came
    for rank, told in zip(outcome.ranks, fields["ranks"], strict=True):
        end = end_of(rank)
        told["test"] = None if end is None else str(end.ended)
    return fields


class JsonFile:
    """The plugin that collects what reports say and writes it when the session ends, however it does."""

    def __init__(self, config: pytest.Config, path: Path, name: str, seed: int) -> None:
        self._config = config
        self._path = path
        self._name = name
        self._seed = seed
        self._began = time.monotonic()
        self._tests: list[dict[str, Any]] = []
        self._trouble = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        attached = getattr(report, _ATTACHED, None)
        if attached is None:
            return
        category, *_ = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        fields = json.loads(attached)
        for message, ranks in fields.pop(_SUBTESTS):  # pytest counts each as a failure, beside the test's own outcome
            self._tests.append({**fields, "outcome": "failed", "message": message, "culprits": ranks})
        if category:  # a setup or teardown that passed has none
            self._tests.append({**fields, "outcome": category})

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        stopped = bool(session.shouldstop or session.shouldfail)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "rankdrill": rankdrill.__version__,
            "complete": exitstatus in _THROUGH and not stopped,
            "exit_status": int(exitstatus),
            "seed": self._seed,
            "elapsed_s": round(time.monotonic() - self._began, 3),
            "tests": [_in_order(test) for test in self._tests],
        }
        try:
            write_whole(self._path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        except OSError as error:
            self._trouble = f"{_OPTION} {self._name}: {error.strerror}; nothing was written"
            if exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._trouble:
            terminalreporter.write_line(self._trouble, red=True)
        else:
            terminalreporter.write_line(f"rankdrill: {len(self._tests)} results in {self._name}")


_FIRST = ("nodeid", "phase", "outcome", "message", "verdict", "summary", "culprits", "victims", "harness", "findings")


def _in_order(test: dict[str, Any]) -> dict[str, Any]:
    """What one looks for first comes first."""
    return {name: test[name] for name in _FIRST} | test


def _message(report: pytest.TestReport) -> str | None:
    """Why it did not pass, in one line, as pytest's own summary has it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).splitlines()[0] if crash.message else None
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return next(iter(report.longreprtext.splitlines()), None)
