"""Frames: round trips, and bytes that are none."""

from __future__ import annotations

import itertools
import mmap
import os
import pathlib
import pickle
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rankdrill.gathers.encoding import wire
from rankdrill.gathers.encoding.coding import Coding, coding_for
from rankdrill.gathers.encoding.wire import Encoded, FrameError, Head, decode, encode
from rankdrill.gathers.host.liveness import identify
from rankdrill.gathers.local import segment
from rankdrill.gathers.storage import files
from tests.gathers.attempts import replaced

NONCE = b"8 bytes!"


def frame_of(value: Any) -> bytearray:
    return encode(value).to_bytearray(NONCE)


def round_trip(value: Any) -> Any:
    return decode(memoryview(frame_of(value)), NONCE)


@pytest.mark.parametrize("value", [None, b"", "text", [1, 2.5, {"a": (3,)}], b"x" * 200_000, bytearray(5000)])
def test_values(value: Any) -> None:
    assert round_trip(value) == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10_000),
        np.arange(10_000)[::3],
        np.zeros(0),
        np.array(3.5),
        np.asfortranarray(np.arange(4000).reshape(40, 100)),
        np.array([("a", 1)] * 300, dtype=[("s", "U8"), ("n", "i4")]),
        np.array([None, "object"], dtype=object),
        np.arange(2000, dtype=">i8"),
        np.ones(3000, dtype=bool),
    ],
)
def test_arrays(array: Any) -> None:
    got = round_trip({"a": array})["a"]
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)
    if got.size and got.dtype != object:
        assert got.flags.writeable
        assert not np.shares_memory(got, array)


def test_a_view_ships_its_own_elements() -> None:
    assert encode(np.arange(1_000_000)[500_000:500_010]).nbytes < 1000


def test_a_large_array_is_not_copied_to_be_encoded() -> None:
    array = np.arange(100_000)
    (buffer,) = encode(array).buffers
    assert np.shares_memory(np.frombuffer(buffer, dtype=array.dtype), array)


def test_shared_references_stay_shared() -> None:
    array = np.arange(5000)
    first, second = round_trip((array, array))
    assert first is second


def test_buffers_are_aligned() -> None:
    for array in round_trip([b"x", np.ones(999), np.ones(1001, dtype=np.uint8), np.ones(500)]):
        assert not isinstance(array, np.ndarray) or array.ctypes.data % array.dtype.alignment == 0


def test_every_truncation_is_noticed() -> None:
    whole = frame_of([1, np.arange(300)])
    for length in range(len(whole)):
        with pytest.raises(FrameError):
            decode(memoryview(whole[:length]), NONCE)


@pytest.mark.parametrize("position", [0, 4, 8, 12, 20, 30, -1])
def test_damage_at_either_end_is_noticed(position: int) -> None:
    damaged = frame_of(list(range(10)))
    damaged[position] ^= 0xFF
    with pytest.raises((FrameError, pickle.UnpicklingError, EOFError)):
        decode(memoryview(damaged), NONCE)


@pytest.mark.parametrize("version", [0, wire.VERSION + 1])
def test_a_frame_of_another_version_is_refused(version: int) -> None:
    with replaced(wire, "VERSION", version):
        frame = frame_of(1)
    with pytest.raises(FrameError, match=f"no frame of version {wire.VERSION}"):
        decode(memoryview(frame), NONCE)


def test_the_frame_of_another_call_is_refused() -> None:
    with pytest.raises(FrameError, match="not written by this call"):
        decode(memoryview(frame_of(1)), b"another!")


def test_sizes_in_a_frame_cannot_reach_beyond_it() -> None:
    damaged = frame_of(np.arange(1000))
    table = damaged.index((8000).to_bytes(8, "little"))
    damaged[table : table + 8] = (1 << 62).to_bytes(8, "little")
    with pytest.raises(FrameError, match="ends at"):
        decode(memoryview(damaged), NONCE)


class Bomb(Encoded):
    """A frame that says other things about itself than are true: what `pieces` gives in place of the first ones."""

    def __init__(self, count: int, stream_bytes: int, lengths: bytes, nbytes: int) -> None:
        head = struct.pack("<4sHxxIQ8s", b"RDgf", wire.VERSION, count, stream_bytes, NONCE) + lengths
        super().__init__([head + bytes(nbytes - len(head) - len(NONCE)) + NONCE], [], nbytes, nbytes)

    def pieces(self, nonce: bytes) -> Iterator[Any]:
        yield from self.stream


BOMBS = {
    "buffers": Bomb(2**32 - 1, 0, b"", 5000),
    "buffers whose lengths are there": Bomb(600, 0, bytes(8 * 600), 5000),
    "stream": Bomb(0, 2**63, b"", 5000),
    "stream beside a buffer": Bomb(1, 2**63, bytes(8), 5000),
    "buffer": Bomb(1, 0, (2**63).to_bytes(8, "little"), 5000),
    "largest buffer": Bomb(1, 0, (2**64 - 1).to_bytes(8, "little"), 5000),
    "buffer without a byte": Bomb(1, 0, bytes(8), 5000),
    "one byte too many": Bomb(1, 0, (5000 - 64 - 8 + 1).to_bytes(8, "little"), 5000),
}


def from_memory(bomb: Bomb, coding: Coding, directory: pathlib.Path) -> Any:
    return coding.decode(memoryview(bomb.to_bytearray(NONCE)), NONCE)


def from_segment(bomb: Bomb, coding: Coding, directory: pathlib.Path) -> Any:
    made = segment.create(bomb, NONCE)
    try:
        return segment.load(os.getpid(), made, bomb.nbytes, NONCE, coding)
    finally:
        os.close(made)


def from_file(bomb: Bomb, coding: Coding, directory: pathlib.Path) -> Any:
    offered = files.offer(str(directory), bomb, NONCE * 2, identify())
    return files.read(offered, NONCE * 2, time.monotonic()).load(coding)


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("load", [from_memory, from_segment, from_file])
@pytest.mark.parametrize("weights_only", [False, True])
def test_a_frame_that_claims_more_than_it_has_costs_nothing(
    name: str, load: Callable[..., Any], weights_only: bool, tmp_path: pathlib.Path
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match=r"says|ends at"):
            load(BOMBS[name], coding_for(weights_only), tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_content_bytes_leave_the_frame_out() -> None:
    payload: Encoded = encode(b"x" * 100)
    assert 100 <= payload.content_bytes < 120
    assert payload.content_bytes < payload.nbytes < payload.content_bytes + 64


def test_lengths_beyond_4_gib_are_not_cut() -> None:
    length = (1 << 32) + 5
    # Room that nobody touches, and that is not set aside.
    with mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) as memory, memoryview(memory) as view:
        for payload in (Encoded.of([b"s"], [view]), Encoded.of([view], [])):
            head, table = itertools.islice(payload.pieces(NONCE), 2)
            stream, places = Head.parse(head, NONCE, payload.nbytes).layout(table)
            ends = [stream, *places]
            assert length in [place.stop - place.start for place in ends]
            assert ends[-1].stop == payload.nbytes - len(NONCE)
            del head, table
        del payload
