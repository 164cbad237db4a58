"""What the soak makes of a session's report."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
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
    assert [text.rpartition(": ")[2] for text in found.told] == ["AssertionError", "RuntimeError"]


def test_a_report_with_what_xml_has_no_room_for() -> None:
    case = '<testcase classname="a" name="b"><failure message="x">\x0b</failure></testcase>'
    assert read(f"<testsuites><testsuite>{case}</testsuite></testsuites>") == (1, {"a::b": "?"})


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


def test_who_ends_it_ends_what_computes_beside_it(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("import time\n\ndef test_long(): time.sleep(60)\n")
    script = Path(__file__).parents[1] / "benchmarks" / "soak.py"
    command = [sys.executable, str(script), "--", "-q", "-p", "no:xdist", "--rootdir", str(tmp_path), "-c", "/dev/null"]
    with subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True) as soak:
        while len(below(soak.pid)) < len(("what computes", "the session")):
            time.sleep(0.05)
        those = below(soak.pid)
        soak.terminate()
        assert soak.wait(60) == 128 + signal.SIGTERM
        until = time.monotonic() + 30
        while any(map(runs, those)) and time.monotonic() < until:
            time.sleep(0.05)
    assert not any(map(runs, those))


def below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
