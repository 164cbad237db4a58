"""What takes long to import is imported once, where ranks are forked from, if the user says so."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

SLOW = """
import os
from pathlib import Path

with Path(__file__).with_suffix(".log").open("a") as log:
    print(os.getpid(), file=log)
"""
TESTS = """
import os

@pytest.mark.ranks(2, fresh=True)
@pytest.mark.parametrize("time", [1, 2])
def test_it(time):
    import slow_to_import
    assert slow_to_import.os is os
"""


@pytest.mark.parametrize("asked", [True, False])
def test_a_module_is_imported_once_and_not_in_each_rank(
    run: Callable[..., Ran], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    pytester.makepyfile(slow_to_import=SLOW)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=os.pathsep)  # as what is installed is found by all
    pytester.makeini(f"[pytest]\nrankdrill_preload = {'slow_to_import' if asked else ''}\n")
    run(TESTS, subprocess=True).result.assert_outcomes(passed=2)
    pids = (pytester.path / "slow_to_import.log").read_text().split()
    assert len(set(pids)) == len(pids) == (1 if asked else 4)


def test_a_module_that_is_not_there_is_refused(run: Callable[..., Ran], pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nrankdrill_preload = no_such_module.core\n")
    ran = run("def test_it():\n    pass\n")
    assert ran.result.ret == pytest.ExitCode.USAGE_ERROR
    ran.result.stderr.fnmatch_lines(["*rankdrill_preload = no_such_module.core: there is no module of that name here*"])
