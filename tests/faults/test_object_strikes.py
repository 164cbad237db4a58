"""Strikes at objects, for every way in which they are pickled and unpickled."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.faults.objects import grown
from tests.faults.here import rank_here

PAYLOAD = {"name": "x" * 1000, "values": list(range(100))}


def by_dumps(value: Any) -> bytes:
    return pickle.dumps(value)


def by_dump(value: Any) -> bytes:
    file = io.BytesIO()
    pickle.dump(value, file)
    return file.getvalue()


def by_pickler(value: Any) -> bytes:
    file = io.BytesIO()
    pickle.Pickler(file, protocol=5, buffer_callback=lambda buffer: True).dump(value)
    return file.getvalue()


def by_own_sink(value: Any) -> bytes:
    class Sink:
        pieces: list[bytes] = []  # noqa: RUF012 (one sink)

        def write(self, piece: Any) -> int:
            self.pieces.append(bytes(piece))
            return len(piece)

    pickle.Pickler(Sink(), protocol=5).dump(value)
    return b"".join(Sink.pieces)


def by_cloudpickle(value: Any) -> bytes:
    return bytes(cloudpickle.dumps(value))


def by_torch(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


DUMPS: dict[str, tuple[Callable[[Any], bytes], str]] = {
    "dumps": (by_dumps, "dumps"),
    "dump": (by_dump, "dump"),
    "pickler": (by_pickler, "dump"),
    "own sink": (by_own_sink, "dump"),
    "cloudpickle": (by_cloudpickle, "dumps"),
    "torch.save": (by_torch, "save"),
}


def loaded(how: str, data: bytes) -> Any:
    return torch.load(io.BytesIO(data)) if how == "torch.save" else pickle.loads(data)


@pytest.fixture(params=DUMPS)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def struck(how: str, strike: str) -> bytes:
    dump, op = DUMPS[how]
    with rank_here(f"rank 0: {strike} at object.{op}") as here:
        data = dump(PAYLOAD)
        assert here.fired == (1,)
        assert here.steps == [f"object.{op}"]
    return data


def test_oversize_grows_and_still_loads(how: str) -> None:
    plain = DUMPS[how][0](PAYLOAD)
    data = struck(how, "oversize(100000)")
    assert len(data) >= len(plain) + 100_000
    assert len(data) == len(plain) + 100_000 or how == "torch.save"  # an archive's table of contents grows too
    assert loaded(how, data) == PAYLOAD


def test_unpicklable_fails_as_the_real_pickler_does(how: str) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock' object"):
        struck(how, "unpicklable")


def test_corrupt_never_loads(how: str) -> None:
    data = struck(how, "corrupt")
    assert len(data) == len(DUMPS[how][0](PAYLOAD))
    with pytest.raises(pickle.UnpicklingError):
        loaded(how, data)


def test_truncate_never_loads(how: str) -> None:
    data = struck(how, "truncate")
    assert len(data) == len(DUMPS[how][0](PAYLOAD)) // 2
    with pytest.raises((pickle.UnpicklingError, EOFError, RuntimeError)):
        loaded(how, data)


def test_fails_to_load_where_it_is_loaded(how: str) -> None:
    data = struck(how, "fails_to_load")
    wanted = "refuse_to_load" if how == "torch.save" else r"^dict does not load here \(planned\)$"
    with pytest.raises(pickle.UnpicklingError, match=wanted):
        loaded(how, data)


LOADS: dict[str, tuple[Callable[[bytes], Any], str]] = {
    "loads": (pickle.loads, "loads"),
    "load": (lambda data: pickle.load(io.BytesIO(data)), "load"),
    "unpickler": (lambda data: pickle.Unpickler(io.BytesIO(data)).load(), "load"),
    "cloudpickle": (cloudpickle.loads, "loads"),
    "torch.load": (lambda data: torch.load(io.BytesIO(data)), "load"),
}


@pytest.mark.parametrize("strike", ["corrupt", "truncate", "fails_to_load"])
@pytest.mark.parametrize("how", LOADS)
def test_a_load_fails_on_the_rank_that_is_struck(how: str, strike: str) -> None:
    data = by_torch(PAYLOAD) if how == "torch.load" else pickle.dumps(PAYLOAD)
    load, op = LOADS[how]
    if how in ("loads", "cloudpickle"):
        load = {"loads": lambda data: pickle.loads(data), "cloudpickle": lambda data: cloudpickle.loads(data)}[how]
    with rank_here(f"rank 0: {strike} at object.{op}") as here:
        with pytest.raises((pickle.UnpicklingError, EOFError, RuntimeError)):
            load(data)
        assert here.fired == (1,)
        assert load(data) == PAYLOAD


def test_a_load_that_is_struck_says_of_what() -> None:
    data = pickle.dumps(PAYLOAD)
    refused = pytest.raises(pickle.UnpicklingError, match=r"^bytes does not load here \(planned\)$")
    with rank_here("rank 0: fails_to_load at object.loads"), refused:
        pickle.loads(data)


def test_what_a_load_reads_is_damaged_not_gone() -> None:
    data = pickle.dumps(PAYLOAD)
    for strike, said in {"corrupt": "invalid load key", "truncate": "truncated"}.items():
        with rank_here(f"rank 0: {strike} at object.load"), pytest.raises(pickle.UnpicklingError, match=said):
            pickle.load(io.BytesIO(data))


def test_buffers_out_of_band_are_left_alone() -> None:
    array = numpy.arange(1000)
    buffers: list[pickle.PickleBuffer] = []
    with rank_here("rank 0: oversize(500) at object.dumps") as here:
        data = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
        assert here.fired == (1,)
    assert (pickle.loads(data, buffers=buffers) == array).all()


def test_a_file_of_several_pickles_still_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    with rank_here("rank 0: oversize(9) at object.dump every"), path.open("wb") as file:
        for value in range(5):
            pickle.dump(value, file)
    with path.open("rb") as file:
        assert [pickle.load(file) for _ in range(5)] == list(range(5))


@given(st.integers(1, 2000), st.integers(0, 5), st.recursive(st.none() | st.text(), st.lists))
def test_any_growth_is_exact_and_loads(by: int, protocol: int, value: Any) -> None:
    data = grown(pickle.dumps(value, protocol), by)
    assert len(data) == len(pickle.dumps(value, protocol)) + by
    assert pickle.loads(data) == value
    assert pickle.load(io.BytesIO(data)) == value


def test_what_pads_an_archive_lies_where_its_other_records_do() -> None:
    with zipfile.ZipFile(io.BytesIO(struck("torch.save", "oversize(500)"))) as archive:
        (folder,) = {name.partition("/")[0] for name in archive.namelist()}
        assert archive.namelist()[-1] == f"{folder}/rankdrill.padding"


def test_a_payload_that_holds_an_archive_is_none(how: str) -> None:
    payload = {"state": by_torch(PAYLOAD)}
    dump, op = DUMPS[how]
    with rank_here(f"rank 0: oversize(500) at object.{op}"):
        data = dump(payload)
    assert loaded(how, data) == payload
