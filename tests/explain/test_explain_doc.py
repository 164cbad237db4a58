"""docs/explain.md shows what really comes out, and names every field."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from rankdrill.cli import main
from rankdrill.explain.as_json import FORMAT
from rankdrill.explain.flight.explained import NEWEST
from rankdrill.explain.flight.load import MOST_BYTES
from tests.explain.flights import Flight, Op, write

TEXT = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()


def dumps(directory: Path) -> Path:
    calls = [Op("all_reduce", line=41), Op("broadcast", line=44), Op("all_reduce", line=52)]
    return write(
        Flight({rank: calls * 3 if rank != 2 else [*calls * 2, calls[0], calls[2]] for rank in range(4)}), directory
    )


def test_the_report_is_what_comes_of_it(tmp_path: Path) -> None:
    shown = TEXT[TEXT.index("    missing call:") : TEXT.index("Exit codes:")]
    lines = [line.removeprefix("    ") for line in shown.rstrip().splitlines()]
    assert CliRunner().invoke(main, ["explain", str(dumps(tmp_path / "dumps"))]).output.splitlines() == lines


def test_the_table_has_every_field_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "why.json"
    CliRunner().invoke(main, ["explain", str(dumps(tmp_path / "dumps")), "--json", str(file)])
    document = json.loads(file.read_text())
    assert re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE) == list(document)
    assert f'| `format` | `"{FORMAT}"` |' in TEXT


def test_numbers_are_those_there_are() -> None:
    assert f"2.0 to {'.'.join(map(str, NEWEST))};" in TEXT
    assert f"more than {MOST_BYTES >> 20} MiB" in TEXT
