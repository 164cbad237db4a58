"""The table of groups: written beside the ring, read while it is written, torn, or longer than it has room for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rankdrill.errors import LedgerError
from rankdrill.ledger import Group, LedgerReader, LedgerWriter
from rankdrill.ledger import format as f
from rankdrill.step import Kind, Step

CAPACITY, SITES = 4, 2
SCATTERED = tuple(range(0, 90, 7)) + tuple(number**2 for number in range(10, 60))
TABLE = f.HEADER_BYTES + CAPACITY * f.RECORD_BYTES + SITES * f.SITE_BYTES


def writer(path: Path) -> LedgerWriter:
    return LedgerWriter(path, rank=0, world_size=4000, capacity=CAPACITY, sites=SITES)


def begin(ledger: LedgerWriter, count: int = 1) -> None:
    for _ in range(count):
        ledger.begin(Step(Kind.COLLECTIVE, "barrier", "default"))


def names(path: Path) -> list[str]:
    return [group.label for group in LedgerReader(path).view().groups]


def test_what_is_written_is_read_and_no_step(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        ledger.introduce_group("default", range(4000))
        begin(ledger, 3)
        ledger.introduce_group("odd", SCATTERED, 1)
        reader = LedgerReader(path)
        first, second = reader.view().groups
        assert (first, first.ranks()) == (Group(0, 0, "default", "0-3999"), tuple(range(4000)))
        assert (second.at, second.label, second.mark, second.ranks()) == (3, "odd", 1, SCATTERED)
        assert second.number > 1, "its members take more than one entry"
        assert second.ranks(5) == SCATTERED[:5]
        assert reader.total == len(reader.view()) == 3


def test_a_name_that_a_second_group_was_given(tmp_path: Path) -> None:
    """Whichever of the two takes several entries."""
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        for ranks in (SCATTERED, (0, 1, 2, 3), SCATTERED[::-1]):
            ledger.introduce_group("odd", ranks)
    made = LedgerReader(path).view().groups
    assert [group.ranks() for group in made] == [SCATTERED, (0, 1, 2, 3), SCATTERED[::-1]]


def test_the_ring_wraps_and_they_are_there(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        ledger.introduce_group("default", range(4))
        begin(ledger, 100 * CAPACITY)
        assert names(path) == ["default"]


def test_those_of_a_run_are_those_since_its_first_step(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        ledger.introduce_group("before", (0, 1))
        begin(ledger, 2)
        ledger.introduce_group("now", (0, 2))
        begin(ledger)
        view = LedgerReader(path).view(2)
        assert [group.label for group in view.groups] == ["now"]
        assert len(LedgerReader(path).view(2, groups_since=0).groups) == 2
        assert [group.label for group in LedgerReader(path).view(3, groups_since=2).groups] == ["now"]


def test_of_more_than_there_is_room_for_the_newest_are_known(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    made = [str(number) for number in range(f.GROUPS + 10)]
    with writer(path) as ledger:
        looking = LedgerReader(path)
        for number, label in enumerate(made):
            ledger.introduce_group(label, (0, number))
            if number % 7 == 0:
                assert looking.view().groups[-1].ranks() == (0, number)
    assert names(path) == [group.label for group in looking.view().groups] == made[-f.GROUPS :]


@pytest.mark.parametrize("at", [0, 8, 16, 20, 96, 200, 252])
def test_an_entry_that_was_not_written_to_its_end_is_not_believed(at: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        ledger.introduce_group("whole", (0, 1))
        ledger.introduce_group("torn", (0, 2))
    raw = bytearray(path.read_bytes())
    raw[TABLE + f.GROUP_BYTES + at : TABLE + 2 * f.GROUP_BYTES] = bytes(f.GROUP_BYTES - at)
    path.write_bytes(raw)
    assert names(path) == ["whole"]


@pytest.mark.parametrize("length", [f.HEADER_BYTES, TABLE - 1, TABLE, TABLE + 1, TABLE + f.GROUP_BYTES - 1])
def test_a_ledger_cut_short_tells_what_is_there(length: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        ledger.introduce_group("default", (0, 1))
    path.write_bytes(path.read_bytes()[:length])
    assert names(path) == []


@pytest.mark.parametrize("total", [1 << 20, 2**64 - 1])
def test_a_count_of_entries_that_are_not_there_is_not_believed(total: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        ledger.introduce_group("default", (0, 1))
    raw = bytearray(path.read_bytes())
    struct.pack_into("<Q", raw, f.GROUPS_OFFSET, total)
    path.write_bytes(raw)
    assert names(path) == []


def test_a_table_of_endless_room_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    writer(path).close()
    raw = bytearray(path.read_bytes())
    struct.pack_into("<I", raw, 44, 2**32 - 1)
    path.write_bytes(raw)
    with pytest.raises(LedgerError, match="room for 4294967295 groups; a ledger has room for at most 65536"):
        LedgerReader(path)


def test_the_clock_at_the_start_is_that_of_the_records(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with writer(path) as ledger:
        begin(ledger)
    reader = LedgerReader(path)
    (record,) = reader.view()
    assert 0 <= record.begin_ns - reader.start_monotonic_ns < 60 * 10**9
