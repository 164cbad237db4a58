"""What weights_only=True makes of a value, and archives that are none, or hold more than they have bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from rankdrill.gathers.encoding import archives
from rankdrill.gathers.encoding.archives import LoadError
from rankdrill.gathers.encoding.coding import coding_for
from rankdrill.gathers.encoding.reading import in_memory
from rankdrill.gathers.encoding.wire import split
from tests.gathers.every_path import archive_of, of_bytes

NONCE = b"8 bytes!"
SAFE = coding_for(True)
# What an archive of torch has besides elements, with room for other versions of torch.
ARCHIVE_BYTES = 4000


def round_trip(value: Any) -> Any:
    return SAFE.decode(memoryview(SAFE.encode(value).to_bytearray(NONCE)), NONCE)


def load(content: bytes) -> Any:
    return SAFE.decode(memoryview(of_bytes(content).to_bytearray(NONCE)), NONCE)


def packed(value: Any) -> bytearray:
    return bytearray(archives.pack("value", value, True))


# ---------------------------------------------------------------------------------------------- views and storages


@pytest.mark.parametrize(
    "view",
    [
        lambda whole: whole[10:12],
        lambda whole: whole[::100_000],
        lambda whole: torch.nn.Parameter(whole[:5]),
        lambda whole: whole[3:5].requires_grad_(),
        lambda whole: {"deep": [whole[:2], whole[2:4]]},
        lambda whole: whole[:0],
    ],
)
def test_a_view_ships_its_own_elements(view: Callable[[torch.Tensor], Any]) -> None:
    value = view(torch.arange(1_000_000.0))
    assert SAFE.encode(value).nbytes < ARCHIVE_BYTES
    got = round_trip(value)
    assert str(got) == str(value)


def test_a_view_keeps_its_attributes_and_stays_one_tensor() -> None:
    view = torch.arange(1000)[3:5]
    view.note = "kept"  # type: ignore[attr-defined]
    first, second = round_trip([view, view])
    assert first is second
    assert (first.tolist(), first.note) == ([3, 4], "kept")


def test_an_expanded_tensor_does_not_grow() -> None:
    wide = torch.ones(1).expand(10**9)
    assert SAFE.encode(wide).nbytes < ARCHIVE_BYTES
    assert round_trip(wide).shape == (10**9,)


def test_tensors_that_share_a_storage_ship_it_once() -> None:
    whole = torch.ones(100_000)
    assert SAFE.encode([whole, whole.view(10, -1)]).nbytes < 4 * 100_000 + ARCHIVE_BYTES


@pytest.mark.parametrize(
    "value",
    [
        torch.eye(3).to_sparse(),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.get_rng_state(),
    ],
    ids=["sparse", "bfloat16", "conjugate", "random state"],
)
def test_tensors_of_other_kinds(value: torch.Tensor) -> None:
    got = round_trip(value)
    assert (got.dtype, got.layout, str(got)) == (value.dtype, value.layout, str(value))


@pytest.mark.filterwarnings("ignore")  # quantized tensors are to go, the newer the torch the sooner
def test_what_does_not_load_without_its_elements_is_tried_with_them() -> None:
    value = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    assert torch.equal(round_trip(value), value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (b"", "builtins.bytes"),
        (frozenset(), "builtins.frozenset"),
        (numpy.ones(3), "numpy.ndarray"),
        (2**3000, "Unsupported operand"),
    ],
)
def test_what_the_safe_unpickler_refuses_is_refused_at_encoding(value: Any, named: str) -> None:
    with pytest.raises(LoadError, match=named) as caught:
        SAFE.encode(value)
    assert len(str(caught.value)) < 250  # so that a slot has room for it


def test_what_the_user_allows_goes_through() -> None:
    with torch.serialization.safe_globals([frozenset]):
        assert round_trip(frozenset([1])) == {1}


# ---------------------------------------------------------------------------------------------- archives that are none


def stored(content: bytes | bytearray) -> None:
    archives.check_stored("it", io.BytesIO(content))


def test_what_torch_and_zipfile_write_is_well() -> None:
    stored(packed(torch.ones(1000)))
    stored(archive_of(b"N.", b"x" * 1000))


def test_every_truncation_is_noticed() -> None:
    whole = packed({"a": torch.ones(3)})
    for length in range(1, len(whole)):
        with pytest.raises(LoadError):
            load(bytes(whole[:length]))
        with pytest.raises(LoadError):
            stored(bytes(whole[:length]) + b"x")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_archives_are_refused(compression: int) -> None:
    with pytest.raises(LoadError, match="is compressed"):
        load(archive_of(b"N.", bytes(100_000), compression))


def test_entries_that_lie_in_one_another_are_refused() -> None:
    content = archive_of(b"N.", b"x" * 5000)
    directory = content.index(b"PK\1\2")
    end = content.index(b"PK\5\6")
    several = content[:directory] + 3 * content[directory:end]
    tail = bytearray(content[end:])
    tail[12:16] = (len(several) - directory).to_bytes(4, "little")
    with pytest.raises(LoadError, match="says that it holds 150"):
        load(several + tail)


def altered(change: Callable[[bytearray], None]) -> bytes:
    content = packed(torch.ones(3))
    change(content)
    return bytes(content)


def a_comment(content: bytearray) -> None:
    content[-2:] = (22).to_bytes(2, "little")
    content += content[-22:]


def a_list_elsewhere(content: bytearray) -> None:
    at = len(content) - 98
    content[at + 48] ^= 1


def a_list_larger_than_all(content: bytearray) -> None:
    at = len(content) - 98
    content[at + 40 : at + 48] = (1 << 40).to_bytes(8, "little")


def another_end(content: bytearray) -> None:
    """For torch, which goes where the locator says; zipfile looks right before it."""
    at = len(content) - 98
    content[-34:-26] = (at + 64).to_bytes(8, "little")


def no_end_of_64_bits(content: bytearray) -> None:
    content[-98:-94] = b"none"


@pytest.mark.parametrize(
    "change", [a_comment, a_list_elsewhere, a_list_larger_than_all, another_end, no_end_of_64_bits]
)
def test_a_list_of_entries_that_two_readers_might_read_differently_is_refused(change: Any) -> None:
    with pytest.raises(LoadError, match="is no archive of torch"):
        load(altered(change))


def test_a_locator_where_there_is_no_room_for_what_it_locates() -> None:
    with pytest.raises(LoadError, match="is no archive of torch"):
        load(b"PK\6\6" + bytes(14) + b"PK\6\7" + bytes(16) + b"PK\5\6" + bytes(18))


def test_an_archive_is_read_where_it_lies() -> None:
    """Not copied before: elements go from the frame straight into their tensor."""
    frame = memoryview(SAFE.encode(torch.ones(1_000_000)).to_bytearray(NONCE))
    parts: list[int] = []

    class Seen:
        def __init__(self) -> None:
            self.file = in_memory(frame)

        def seek(self, position: int, /) -> int:
            return self.file.seek(position)

        def readinto(self, buffer: Any, /) -> int | None:
            parts.append(len(buffer))
            return self.file.readinto(buffer)

    got = SAFE.read(Seen(), *split(frame, NONCE), lambda place: pytest.fail("a part was had in memory"))
    assert got.sum().item() == 1_000_000
    assert sum(parts) < 1.1 * 4_000_000
