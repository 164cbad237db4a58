"""What a ring holds, in one piece: as much as there is of it, in order, and each record decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.ledger import format as f
from rankdrill.ledger import reader as decoding
from rankdrill.ledger.slots import NOT_WHOLE, Slots
from rankdrill.step import Kind, Step

ROOM = 8


def written(path: Path, steps: int) -> None:
    with LedgerWriter(path, rank=0, world_size=1, capacity=ROOM, sites=0) as ledger:
        for number in range(steps):
            step = Step(Kind.COLLECTIVE if number % 2 else Kind.STORE, f"op-{number}", sequence=number)
            ledger.mark(ledger.begin(step), State.ENDED)


@pytest.mark.parametrize("steps", [0, 1, ROOM - 1, ROOM, ROOM + 3, 2 * ROOM])
def test_a_ring_is_read_in_order_wherever_it_ends(tmp_path: Path, steps: int) -> None:
    written(tmp_path / "ledger", steps)
    view = LedgerReader(tmp_path / "ledger").view()
    left = range(max(steps - ROOM, 0), steps)
    assert [record.index for record in view] == list(left)
    assert [record.step.op for record in view] == [f"op-{number}" for number in left]
    assert (view.first, view.dropped, view.torn, len(view.raw)) == (left.start, left.start, 0, len(left))


def test_of_a_file_that_was_cut_short_the_slots_that_are_left_are_read(tmp_path: Path) -> None:
    """Where the ring has come round, what is missing lies in the middle."""
    written(tmp_path / "ledger", ROOM + 3)
    path = tmp_path / "ledger"
    path.write_bytes(path.read_bytes()[: f.HEADER_BYTES + 5 * f.RECORD_BYTES + 100])
    view = LedgerReader(path).view()
    assert [record.index for record in view] == [3, 4, 8, 9, 10]
    assert view.torn_at == (5, 6, 7)
    assert len(view.raw) == ROOM
    assert {len(raw) for raw in view.raw} == {f.RECORD_BYTES}


def test_slots_are_a_sequence(tmp_path: Path) -> None:
    written(tmp_path / "ledger", 5)
    raw = LedgerReader(tmp_path / "ledger").view().raw
    assert [*raw] == [raw[place] for place in range(5)]
    assert raw[-1] == raw[4]
    assert (raw[1:3], len(raw[3:]), len(raw[4:2]), raw[:]) == (Slots(raw[1] + raw[2]), 2, 0, raw)
    assert raw[:0] == Slots()
    with pytest.raises(IndexError):
        raw[5]
    assert list(raw.marks(0)) == [
        f.KINDS.index(Kind.COLLECTIVE if number % 2 else Kind.STORE) << 8 | State.ENDED for number in range(5)
    ]
    assert set(raw.marks(1)) == {NOT_WHOLE}, "another record than the slot is for"


def test_the_newest_come_first_where_they_are_asked_for(tmp_path: Path) -> None:
    written(tmp_path / "ledger", 6)
    view = LedgerReader(tmp_path / "ledger").view()
    collectives = [record.index for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE)]
    assert collectives == [1, 3, 5]
    backwards = view.where(lambda kind, state: kind is Kind.COLLECTIVE, newest_first=True)
    assert [record.index for record in backwards] == [5, 3, 1]


def test_a_record_is_decoded_once_and_only_if_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "ledger", 6)
    view = LedgerReader(tmp_path / "ledger").view()
    decoded: list[int] = []
    decode = decoding._decode

    def noted(raw: bytes, at: int, *more: Any) -> Any:
        decoded.append(at // f.RECORD_BYTES)
        return decode(raw, at, *more)

    monkeypatch.setattr(decoding, "_decode", noted)
    assert view.last is not None
    assert view.last is view.last
    assert decoded == [5]
    assert view.last_open is view.last_raised is None
    assert len(decoded) == 1
    first = view.records
    assert [*view.where(lambda kind, state: True)] == list(first)
    assert len(decoded) == 6


def test_a_view_of_nothing() -> None:
    view = LedgerView()
    assert (view.records, view.last, view.torn, len(view.raw)) == ((), None, 0, 0)
