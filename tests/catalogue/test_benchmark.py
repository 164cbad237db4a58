"""benchmarks/catalogue.py on a few programs: its tables, its verdicts as data, its page, and what `--check` finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import catalogue as benchmark
from benchmarks.cataloguing.document import source_of

from tests.catalogue.misses import known_misses
from tests.catalogue.programs import Program, catalogue
from tests.catalogue.scoring import Judged, Verdict

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "catalogue.py"
PROGRAMS = {program.name: program for program in catalogue()}
MISTAKE, RIGHT = "operators.max_for_sum", "groups.all_taken_down_at_once"
PATIENCE_S = 300


def asked(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--only", "rankdrill", *options]
    environ = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environ)


def cells_of(screen: str, first: str) -> list[str]:
    """The row of a table that begins with `first`."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in screen.splitlines() if "│" in line]
    (row,) = [row for row in rows if row[0] == first]
    return row[1:]


def test_a_mistake_and_what_is_right(tmp_path: Path) -> None:
    file, page = tmp_path / "verdicts.json", tmp_path / "page.md"
    ran = asked("--program", MISTAKE, RIGHT, "--check", "--json", str(file), "--document", str(page))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 programs with one mistake each, 1 correct ones" in ran.stdout
    recall, specificity, strict, findings, seconds = cells_of(ran.stdout, "rankdrill")
    assert (recall, specificity, strict, findings) == ("1.000", "1.000", "1.000", "1.000")
    assert float(seconds) > 0
    assert cells_of(ran.stdout, "operator mismatch") == ["1", "1", "1"]
    verdicts: list[dict[str, Any]] = json.loads(file.read_text())["verdicts"]["rankdrill"]
    truth = PROGRAMS[MISTAKE].truth
    assert truth is not None
    assert [(each["program"], each["right"], each["wrong in"]) for each in verdicts] == [
        (MISTAKE, True, []),
        (RIGHT, True, []),
    ]
    assert verdicts[0]["ranks"] == list(truth.culprits)
    assert set(verdicts[0]["lines"]) <= truth.lines
    assert f"```python\n# {MISTAKE}, on 4 ranks\n{source_of(PROGRAMS[MISTAKE])}\n```" in page.read_text()
    assert "1 of 1 are told strictly right" in page.read_text()


def told(monkeypatch: pytest.MonkeyPatch, name: str, verdict: Verdict) -> int:
    """The exit code of `--check` where rankdrill had said that of the program."""

    def judged(tool: str, programs: Sequence[Program], deadline: float) -> list[Judged]:
        return [Judged(program, verdict) for program in programs]

    monkeypatch.setattr(benchmark, "_run", judged)
    monkeypatch.setattr(sys, "argv", ["catalogue.py", "--only", "rankdrill", "--program", name, "--check"])
    monkeypatch.setenv("COLUMNS", "200")
    return benchmark.main()


def right(name: str) -> Verdict:
    truth = PROGRAMS[name].truth
    assert truth is not None
    return Verdict(True, 0.1, truth.kind, truth.ranks, bool(truth.culprits), truth.lines, 1)


def test_check_finds_a_mistake_that_is_not_told_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(monkeypatch, MISTAKE, right(MISTAKE)) == 0
    assert told(monkeypatch, MISTAKE, replace(right(MISTAKE), kind="size mismatch")) == 1
    assert f"{MISTAKE} is not told right, and is no known miss" in capsys.readouterr().out
    assert told(monkeypatch, RIGHT, Verdict(noticed=True, seconds=0.1, text="a false alarm")) == 1
    assert f"{RIGHT} is not told right, and is no known miss" in capsys.readouterr().out


def test_check_finds_a_known_miss_that_is_told_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in known_misses():
        assert told(monkeypatch, name, Verdict(noticed=False, seconds=0.1)) == 0
        assert told(monkeypatch, name, right(name)) == 1
        assert f"{name} is told strictly right by now: take it off the known misses" in capsys.readouterr().out


def test_names_that_no_program_has_are_refused() -> None:
    ran = asked("--program", "no.such_program")
    assert ran.returncode == 1
    assert "no program is of that name and kind" in ran.stderr
