"""docs/how-it-works.md names files that are there, and its steps are numbered in order."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "how-it-works.md").read_text()


def test_every_file_it_names_is_there() -> None:
    there = {str(path) for path in (ROOT / "harness" / "rankdrill").rglob("*.py")}
    for name in re.findall(r"`([\w/]+\.py)`", TEXT):
        assert any(path.endswith(f"/{name}") for path in there), name


def test_the_steps_are_in_order() -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", TEXT, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
