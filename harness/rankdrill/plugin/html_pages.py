"""``--rankdrill-html DIR``: of each test on ranks that failed a page to look at, named in its report."""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rankdrill.outputs import write_whole

if TYPE_CHECKING:
    from rankdrill.plugin.item import RankedItem

__all__ = ["add_page", "write_pages"]

_OPTION = "--rankdrill-html"
_PAGE = "rankdrill_page"
"""The attribute of a report; text, which every plugin that sends reports elsewhere can send."""
_SECTION = "rankdrill page"
_LONGEST = 120  # characters of a file's name


def write_pages(config: pytest.Config) -> None:
    """Have this session count its pages; refused now where no directory can be had for them."""
    directory = _directory(config)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"{_OPTION} {directory}: {error.strerror}; give a directory") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise pytest.UsageError(f"{_OPTION} {directory}: cannot be written; give a directory of yours")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Pages(directory), "rankdrill-html")


def add_page(item: RankedItem, report: pytest.TestReport) -> None:
    """Write the page of one phase of `item` if it failed there and ranks have something to show; `report` names it."""
    outcome = item.told.get(report.when)
    if outcome is None or not report.failed:
        return
    from rankdrill.report import picture_of, run_as_html

    path = _directory(item.config) / _name_of(item.nodeid, report.when)
    try:
        write_whole(path, run_as_html(picture_of(outcome, item.nodeid, item.run_again.splitlines()[0])))
    except OSError as error:
        report.sections.append((_SECTION, f"{path}: {error.strerror}; nothing was written"))
        return
    report.sections.append((_SECTION, str(path)))
    setattr(report, _PAGE, str(path))


def _directory(config: pytest.Config) -> Path:
    return Path(config.invocation_params.dir, config.getoption("rankdrill_html"))


def _name_of(nodeid: str, phase: str) -> str:
    """A file's name for a test: one that says which, and is no other test's."""
    plain = re.sub(r"[^\w.\[\]=,-]+", "-", nodeid, flags=re.ASCII)[-_LONGEST:].strip("-.")
    alone = len(nodeid) <= _LONGEST and re.fullmatch(r"[\w./]+(::\w+)+", nodeid, flags=re.ASCII) is not None
    told = "" if alone else f"-{blake2b(nodeid.encode(errors='surrogateescape'), digest_size=4).hexdigest()}"
    return f"{plain}{told}{'' if phase == 'call' else f'-{phase}'}.html"


class _Pages:
    """Counts the pages of a session, and says where they are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pages: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        page = getattr(report, _PAGE, None)
        if page is not None:
            self._pages.add(page)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._pages:
            many = f"{len(self._pages)} page{'s' if len(self._pages) > 1 else ''}"
            terminalreporter.write_line(f"rankdrill: {many} of failed tests in {self._directory}")
