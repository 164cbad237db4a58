"""Coverage counts what ranks run: with pytest-cov, under pytest-xdist too, and with coverage alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData

from tests.plugin.conftest import WITHOUT_TORCH, Ran

Run = Callable[..., Ran]

WORK = """\
def ways(index):
    if index == 0:
        return "only rank 0"
    elif index == 1:
        return "only rank 1"
    return "no rank"

def before_death():
    return 1

def uncounted():
    return 2
"""
TESTS = """
import work

@pytest.fixture
def prepared():
    work.before_death()

@pytest.mark.ranks(2)
def test_ways(rank):
    work.ways(rank.index)

@pytest.mark.ranks(2)
def test_uncounted(rank, no_cover):
    work.uncounted()

@pytest.mark.ranks(1)
def test_dies(prepared):
    os.kill(os.getpid(), signal.SIGKILL)
"""
COUNTED, NOT_COUNTED = [1, 2, 3, 4, 5, 8, 9, 11], [6, 12]


@pytest.fixture
def work(pytester: pytest.Pytester) -> Path:
    """A module of which different ranks run different lines."""
    pytester.makepyfile(work=WORK)
    return pytester.path


def _of_work(directory: Path) -> Any:
    (told,) = json.loads((directory / "coverage.json").read_text())["files"].values()
    return told


@pytest.mark.parametrize(
    "distributed",
    [pytest.param((), id="one process", marks=pytest.mark.nightly), pytest.param(("-n", "2"), id="xdist")],
)
def test_lines_and_branches_that_only_ranks_run_count(run: Run, work: Path, distributed: tuple[str, ...]) -> None:
    ran = run(
        TESTS, "--cov=work", "--cov-branch", "--cov-report=json", *distributed, subprocess=True, header=WITHOUT_TORCH
    )
    ran.result.assert_outcomes(passed=2, failed=1)
    told = _of_work(work)
    assert told["executed_lines"] == COUNTED
    assert told["missing_lines"] == NOT_COUNTED
    assert told["executed_branches"] == [[2, 3], [2, 4], [4, 5]]
    assert told["missing_branches"] == [[4, 6]]
    assert sorted(file.name for file in work.glob(".coverage*")) == [".coverage"]


@pytest.mark.nightly
def test_lines_are_put_down_to_their_tests_and_ranks_are_kept(run: Run, work: Path) -> None:
    ran = run(
        """
import work

pids = []

@pytest.mark.ranks(2)
def test_first(rank, tmp_path):
    pids.append(os.getpid())
    work.ways(rank.index)

@pytest.mark.ranks(2)
def test_second(rank):
    assert pids == [os.getpid()]
""",
        "--cov=work",
        "--cov-context=test",
        subprocess=True,
    )
    ran.result.assert_outcomes(passed=2)
    data = CoverageData(basename=str(work / ".coverage"))
    data.read()
    contexts = data.contexts_by_lineno(str(work / "work.py"))
    assert contexts[3] == contexts[5] == ["test_it.py::test_first|run"]


def test_nothing_is_measured_unless_asked_for(run: Run, work: Path) -> None:
    ran = run(
        """
import work

@pytest.mark.ranks(2)
def test_it(rank):
    assert sys.gettrace() is None
    work.ways(rank.index)
""",
        "--cov=work",
        "--no-cov",
        subprocess=True,
    )
    ran.result.assert_outcomes(passed=1)
    assert not list(work.glob(".coverage*"))


@pytest.mark.nightly
def test_without_pytest_cov(pytester: pytest.Pytester, work: Path) -> None:
    pytester.makepyfile(test_it=WITHOUT_TORCH + TESTS.replace(", no_cover", ""))
    pytester.makefile(".toml", pyproject="[tool.coverage.run]\nbranch = true\n")
    coverage = [sys.executable, "-m", "coverage"]
    measured = [*coverage, "run", "--source=work", "-m", "pytest", "-p", "no:cov", "-p", "no:cacheprovider"]
    ran = subprocess.run(measured, cwd=work, capture_output=True, text=True)
    outcomes = pytest.RunResult.parse_summary_nouns(ran.stdout.splitlines())
    assert (outcomes["passed"], outcomes["failed"]) == (2, 1)
    subprocess.run([*coverage, "json"], cwd=work, check=True, stdout=subprocess.DEVNULL)
    told = _of_work(work)
    assert told["missing_lines"] == [6]
    assert told["missing_branches"] == [[4, 6]]
