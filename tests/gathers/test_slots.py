"""Slots: what fits, what is cut, what is refused."""

from __future__ import annotations

import pytest

from rankdrill.gathers.agreement import slots
from rankdrill.gathers.agreement.callsite import CallPlace, capture
from rankdrill.gathers.agreement.outcomes import Trouble, TroubleKind
from rankdrill.gathers.agreement.slots import HEADER_BYTES, PATHS, Slot, SlotError
from rankdrill.gathers.host.liveness import identify
from tests.gathers.attempts import replaced


def slot(**changes: object) -> Slot:
    given: dict[str, object] = {
        "path": "all_gather", "rank": 3, "number": 1 << 40, "round": 2, "place": capture(), "nonce": b"n" * 16,
        "size": 1 << 50, "digest": b"d" * 16, "identity": identify(), "text": "max_size=5",
    }  # fmt: skip
    return Slot(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PATHS)
def test_round_trip(path: str) -> None:
    sent = slot(path=path)
    got = Slot.unpack(memoryview(sent.pack(HEADER_BYTES + 100)))
    for name in ("path", "rank", "number", "round", "nonce", "size", "digest", "identity", "text", "trouble"):
        assert getattr(got, name) == getattr(sent, name), name
    assert (got.place.site, got.place.depth, got.place.frames) == (
        sent.place.site,
        sent.place.depth,
        sent.place.frames,
    )


def test_a_small_payload_travels_along() -> None:
    got = Slot.unpack(memoryview(slot(size=5, inline=b"12345").pack(HEADER_BYTES + 100)))
    assert bytes(got.inline) == b"12345"


def test_trouble_takes_the_offer_back() -> None:
    got = Slot.unpack(
        memoryview(slot(inline=b"x").with_trouble(Trouble(TroubleKind.DECODE, "why", 1)).pack(HEADER_BYTES))
    )
    assert got.trouble == Trouble(TroubleKind.DECODE, "why", 1)
    assert (got.size, bytes(got.inline)) == (0, b"")


def test_long_texts_are_cut_where_it_hurts_least() -> None:
    long = slot(text="cause " * 500, place=CallPlace("/deep" * 100 + "/file.py:7", 3, ()))
    got = Slot.unpack(memoryview(long.pack(HEADER_BYTES)))
    assert got.text.startswith("cause cause")
    assert got.place.site.endswith("/file.py:7")


def test_every_damaged_byte_is_noticed() -> None:
    whole = slot(size=5, inline=b"12345").pack(HEADER_BYTES + 5)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises(SlotError):
            Slot.unpack(memoryview(damaged))


def test_memory_that_nobody_wrote_is_no_slot() -> None:
    with pytest.raises(SlotError, match="no slot"):
        Slot.unpack(memoryview(bytearray(HEADER_BYTES)))


@pytest.mark.parametrize("version", [1, 3])
def test_a_slot_of_another_version_is_refused(version: int) -> None:
    with replaced(slots, "VERSION", version):
        block = slot().pack(HEADER_BYTES)
    with pytest.raises(SlotError, match="no slot of version 2"):
        Slot.unpack(memoryview(block))
