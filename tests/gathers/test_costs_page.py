"""The table of costs in docs/gathers.md is written by the benchmark, and has every way to gather."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.gathering.document import BEGIN, END
from benchmarks.gathering.ways import WAYS

ROOT = Path(__file__).resolve().parents[2]
QUICKLY = ("--payload", "100 B", "--path", "objects", "--ranks", "2", "--quick", "--budget", "0.1")


def test_every_way_stands_in_the_table() -> None:
    table = (ROOT / "docs" / "gathers.md").read_text().partition(BEGIN)[2].partition(END)[0]
    assert all(f"\n| {way.name} | " in table for way in WAYS.values())
    assert "ratios that this benchmark is meant to reach" in table


@pytest.mark.nightly
def test_the_benchmark_writes_what_it_measured_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    _bench(page)
    before, _, rest = page.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    assert before == "before\n"
    assert after == "\nafter\n"
    assert "old" not in table
    assert "| | 100 B | memory, 64 MB |" in table
    row = next(line for line in table.splitlines() if line.startswith("| all_gather_object |"))
    assert float(row.split("|")[2]) > 0


@pytest.mark.nightly
def test_a_page_without_marks_is_told_so_and_left(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no table\n")
    said = _bench(page, succeeds=False)
    assert f"{page} has no place for the table" in said
    assert page.read_text() == "no table\n"


def _bench(page: Path, *, succeeds: bool = True) -> str:
    command = [sys.executable, str(ROOT / "benchmarks" / "gathers.py"), *QUICKLY, "--document", str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=page.parent)
    assert (ran.returncode == 0) is succeeds, ran.stdout + ran.stderr
    return ran.stderr
