"""benchmarks/catalogue.py on a few programs: its tables, its verdicts as data, its page, and what `--check` finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.cataloguing.document import source_of

from tests.catalogue.programs import catalogue

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "catalogue.py"
PROGRAMS = {program.name: program for program in catalogue()}
MISTAKE, RIGHT = "operators.max_for_sum", "groups.all_taken_down_at_once"
STUCK_LATE = "stuck.waits_for_a_better_time_in_the_last_turn"
TOO_SOON_S = "0.001"  # thirty turns take longer
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


def test_a_verdict_that_is_not_as_it_should_be_is_found_by_check() -> None:
    ran = asked("--program", STUCK_LATE, "--deadline", TOO_SOON_S, "--check")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert f"{STUCK_LATE} is not told right, and is no known miss" in ran.stdout


def test_names_that_no_program_has_are_refused() -> None:
    ran = asked("--program", "no.such_program")
    assert ran.returncode == 1
    assert "no program is of that name and kind" in ran.stderr
