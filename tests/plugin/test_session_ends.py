"""The end of a session on ranks: what plugins write then is written once, and a snapshot is nobody's to delete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

WRITES = """
import os

def pytest_sessionfinish(session, exitstatus):
    session.exitstatus |= exitstatus
    with open({file!r}, "a") as file:
        print(os.environ.get("RANK", "controller"), file=file)
"""
TWO = """
@pytest.mark.ranks(3)
def test_it(): ...
"""


def test_what_is_installed_ends_the_session_on_rank_0_alone(
    run: Run, pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "of_others.py").write_text(WRITES.format(file=str(tmp_path / "installed")))
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("PYTHONPATH", str(installed))
    pytester.makeconftest(WRITES.format(file=str(tmp_path / "own")))
    run(TWO, "-p", "of_others", subprocess=True).result.assert_outcomes(passed=1)
    assert sorted((tmp_path / "installed").read_text().split()) == ["0", "controller"]
    assert sorted((tmp_path / "own").read_text().split()) == ["0", "1", "2", "controller"]


SNAPSHOTS = """
def test_alone(snapshot):
    assert [1] == snapshot

@pytest.mark.ranks(2)
def test_ranks(snapshot):
    assert {"sum": 3} == snapshot
"""


def test_snapshots_are_compared_on_ranks_written_once_and_kept(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # by which syrupy would take itself for a worker's
    refused = run(SNAPSHOTS, subprocess=True)
    assert refused.result.ret == 2
    assert "syrupy would hold the snapshots of a test on ranks for unused" in refused.screen
    keep = "--snapshot-disable-unused"
    run(SNAPSHOTS, keep, "--snapshot-update", subprocess=True).result.assert_outcomes(passed=2)
    (written,) = (pytester.path / "__snapshots__").iterdir()
    text = written.read_text()
    assert text.count("# name: test_alone") == text.count("# name: test_ranks") == 1
    run(SNAPSHOTS, keep, subprocess=True).result.assert_outcomes(passed=2)
    assert written.read_text() == text
    other = run(SNAPSHOTS.replace("3}", "4}"), keep, subprocess=True)
    other.result.assert_outcomes(passed=1, failed=1)
    assert "ranks 0, 1 failed" in other.screen
