"""What the soak makes of a session's report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.soak import Round, keep, kept, read, run_once

SOME_FAIL = r"""
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("\x00 is no text")

def test_right(): pass
def test_wrong(): assert "\x00" == 1
def test_error(broken): pass
@pytest.mark.skip
def test_left_out(): pass
"""


def test_it_counts_what_failed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SOME_FAIL)
    found = run_once(["-q", "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)])
    assert (found.code, found.tests, found.failed) == (1, 4, ("test_some::test_wrong", "test_some::test_error"))


def test_a_report_with_what_xml_has_no_room_for() -> None:
    case = '<testcase classname="a" name="b"><failure message="x">\x0b</failure></testcase>'
    assert read(f"<testsuites><testsuite>{case}</testsuite></testsuites>") == (1, ("a::b",))


@pytest.mark.nightly
def test_a_round_that_cannot_run_says_why(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "soak.py"
    command = [sys.executable, str(script), "--rounds", "1", "--busy", "0", "--", "--no-such-option"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "--no-such-option" in done.stderr


def test_a_soak_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "rounds.json"
    assert kept(file) == []
    keep(file, [Round(0, 7, (), 1.0, "one"), Round(1, 7, ("a::b",), 2.0, "two+")])
    assert [one.failed for one in kept(file)] == [(), ("a::b",)]
    script = Path(__file__).parents[1] / "benchmarks" / "soak.py"
    command = [sys.executable, str(script), "--rounds", "2", "--again", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "1 of 2 rounds passed, of one, two+" in done.stdout
