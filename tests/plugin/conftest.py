"""Runs pytest inside pytest: the sessions under test share one template, since these modules stay imported."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch.distributed  # noqa: F401 (cannot be imported twice into one process)

import rankdrill.plugin.examples
import rankdrill.plugin.item
import rankdrill.plugin.session_setup
import rankdrill.worlds  # noqa: F401
from tests.conftest import Session

HEADER = """
import os, signal, sys, time
import pytest
import torch
import torch.distributed as dist
"""
WITHOUT_TORCH = """
import os, signal
import pytest
"""
"""For workers of pytest-xdist, each of which would import it."""

# This process has them already: that is the point of running in it.
ALREADY_IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"


@dataclass
class Ran:
    """A session that has run: its screen, its JUnit cases by test name, its exit code."""

    result: pytest.RunResult
    cases: dict[str, ET.Element]

    @property
    def screen(self) -> str:
        return str(self.result.stdout)

    def outcome(self, test: str) -> str:
        """passed, failed, error or skipped, as JUnit has it."""
        case = self.cases[test]
        for tag in ("failure", "error", "skipped"):
            if case.find(tag) is not None:
                return {"failure": "failed"}.get(tag, tag)
        return "passed"

    def failure(self, test: str) -> str:
        """The text of the one failure of `test`."""
        found = [element for tag in ("failure", "error") for element in self.cases[test].findall(tag)]
        assert len(found) == 1, f"{len(found)} reports for one cause: {[element.get('message') for element in found]}"
        return f"{found[0].get('message')}\n{found[0].text}"


@pytest.fixture
def run(pytester: pytest.Pytester, session: Session) -> Callable[..., Ran]:
    """Runs a test file in a session of its own, in this process; returns what came of it.

    With `subprocess` in a process of its own; in a fresh interpreter for the reason that `fresh` gives. With
    pytest-asyncio only if `asyncio` asks for it: it warns, and what it warns of a session inside shows outside.
    """

    def ran(
        source: str,
        *args: str,
        subprocess: bool = False,
        fresh: str = "",
        header: str = HEADER,
        asyncio: bool = False,
    ) -> Ran:
        pytester.makepyfile(test_it=header + source)
        options = ["--junitxml=junit.xml", "-W", ALREADY_IMPORTED, *args]
        # Of every session in this process pytest-rerunfailures would leave a thread and a socket here, and syrupy
        # knows of one session only.
        unwanted = ["cacheprovider", "rerunfailures", *(() if subprocess or fresh else ("syrupy",))]
        options += [part for name in unwanted for part in ("-p", f"no:{name}")]
        if not asyncio:
            options += ["-p", "no:asyncio"]
        result = session(*options, fresh=fresh) if subprocess or fresh else pytester.runpytest_inprocess(*options)
        junit = pytester.path / "junit.xml"
        cases = {}
        if junit.exists():
            for case in ET.parse(junit).getroot().iter("testcase"):
                name = str(case.get("name"))
                assert name not in cases, f"{name} was reported twice"
                cases[name] = case
        return Ran(result, cases)

    return ran
