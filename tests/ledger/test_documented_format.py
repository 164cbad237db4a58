"""docs/ledger.md says where each field lies; here that is compared with the code."""

from __future__ import annotations

import re
import struct
from pathlib import Path

from rankdrill.ledger import format as f
from rankdrill.step import Kind

TEXT = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
ROW = re.compile(r"^\| (\d+) \| ([\dx ]+|288 x capacity) \| (.*) \|$", re.MULTILINE)


def rows(section: str) -> list[tuple[int, int, str]]:
    text = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [(int(offset), int(size), what) for offset, size, what in ROW.findall(text) if size.isdigit()]


def test_fields_of_a_record() -> None:
    fields = rows("Record")
    end = 0
    for offset, size, what in fields:
        assert offset == end, what
        end += size
    assert end == f.RECORD_BYTES
    codes = re.findall(r"\d*[A-Za-z]", str(f.RECORD.format).removeprefix("<"))
    assert [size for _, size, _ in fields] == [struct.calcsize(f"<{code}") for code in codes]
    named = {what.split(":")[0].split(",")[0]: offset for offset, _, what in fields}
    assert named["end"] == f.END_OFFSET
    assert named["state"] == f.STATE_OFFSET
    assert named["patience in ms"] == f.PATIENCE_OFFSET
    assert named["type of the exception that the step raised"] == f.ERROR_OFFSET
    assert named["0"] == f.FAULT_OFFSET
    assert named["peer"] == f.MESSAGE_OFFSET


def test_fields_of_the_header() -> None:
    fields = {what: (offset, size) for offset, size, what in rows("File")}
    assert sum(size for offset, size in fields.values() if offset < f.HEADER.size) == f.HEADER.size
    assert fields["total: how many records have been begun"] == (f.TOTAL_OFFSET, 8)
    assert fields["groups: how many entries have been written to the table of groups"] == (f.GROUPS_OFFSET, 8)
    assert fields["clock: what the machine's monotonic clock was at the start, in ns"] == (f.CLOCK_OFFSET, 8)
    assert f"| {f.FIRED_OFFSET} | 4 x {f.MAX_FAULTS} |" in TEXT
    assert f"| {f.HEADER_BYTES} | {f.RECORD_BYTES} x capacity |" in TEXT
    assert f"({f.CAPACITY} unless" in TEXT


def test_fields_of_a_call_site() -> None:
    end = 0
    for offset, size, what in rows("Call sites"):
        assert offset == end, what
        end += size
    assert end == f.SITE_BYTES
    assert f"| {f.SITE_BYTES} x room |" in TEXT
    assert f"({f.SITES}, at most" in TEXT


def test_fields_of_a_group() -> None:
    end = 0
    for offset, size, what in rows("Groups"):
        assert offset == end, what
        end += size
    assert end == f.GROUP_BYTES
    assert f"| {f.GROUP_BYTES} x room for groups |" in TEXT
    assert f"({f.GROUPS}, at most" in TEXT


def test_states_and_kinds() -> None:
    for state in f.State:
        assert re.search(rf"\b{state.value} {state.name.lower()}\b", TEXT), state
    for code, kind in enumerate(Kind):
        assert f"{code} {kind}" in TEXT
