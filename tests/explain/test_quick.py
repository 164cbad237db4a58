"""Dumps read in C say what they say when they are built: those that torch writes, and whatever else is let through."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rankdrill.errors import DumpError
from rankdrill.explain.flight.columns import Tables, columns_of
from rankdrill.explain.flight.load import load
from rankdrill.explain.flight.quick import columns_of_pickle
from rankdrill.native import hot
from tests.explain.flights import VERSIONS, Flight, Op, dump_of, recv, send, told, torch_pickle

pytestmark = pytest.mark.skipif(hot is None, reason="the C was not built, or is not wanted")

FIXTURES = Path(__file__).parents[2] / "fixtures"
BOUND_S = 30.0
COMPLETE_SINCE = "2.3"  # all fields are there
CALLS = [Op("all_reduce", sizes=((4, 2), ())), send(1), Op("coalesced", sizes=()), Op("all_reduce", line=11)] * 3
OTHERS = [Op("all_reduce", sizes=((4, 2), ())), recv(0), Op("coalesced", sizes=()), Op("broadcast", dtype="Half")] * 3


def dumps(versions: Sequence[str] = VERSIONS) -> list[dict[str, Any]]:
    flights = [Flight({0: CALLS, 1: OTHERS}, version=version) for version in versions]
    return [dump_of(flight, rank) for flight in flights for rank in (0, 1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_say_the_same_of_what_torch_writes(version: str) -> None:
    tables, own = Tables(), Tables()
    for dump in dumps([version]):
        raw = torch_pickle(dump)
        quick = columns_of_pickle(raw, own)
        assert (quick is not None) == (VERSIONS.index(version) >= VERSIONS.index(COMPLETE_SINCE))
        if quick is not None:
            assert told(quick) == told(columns_of(load(raw), tables))
            assert own == tables


@pytest.mark.parametrize("protocol", range(2, 6))
def test_what_python_writes_is_read_too(protocol: int) -> None:
    for dump in dumps(["2.10"]):
        dump["entries"][1]["duration_ms"] = -0.5
        raw = pickle.dumps(dump, protocol)
        quick = columns_of_pickle(raw, Tables())
        assert quick is not None
        assert told(quick) == told(columns_of(load(raw), Tables()))


def test_both_ways_say_the_same_of_all_fixtures() -> None:
    read = 0
    for file in sorted(FIXTURES.rglob("*")):
        raw = file.read_bytes() if file.is_file() else b""
        if raw[:1] != b"\x80":
            continue
        tables, own = Tables(), Tables()
        quick = columns_of_pickle(raw, own)
        try:
            built = told(columns_of(load(raw), tables))
        except DumpError:
            assert quick is None, file
            continue
        if quick is not None:
            read += 1
            assert (told(quick), own) == (built, tables), file
    assert read >= 10


@pytest.mark.parametrize(
    "change",
    [
        {"entries": []},
        {"entries": {}},
        {"entries": [None]},
        {"entries": [{}]},
        {"pg_config": {1: {}}},
        {"more": {("0", "default_pg"): 1}},
        {"more": 1 << 90},
        {"version": b"2"},
    ],
)
def test_other_dumps_are_left_to_python(change: dict[str, Any]) -> None:
    (dump, *_) = dumps(["2.10"])
    raw = pickle.dumps(dump | change)
    quick = columns_of_pickle(raw, Tables())
    if change == {"version": b"2"}:
        assert quick is not None
        assert quick.version == ""
    else:
        assert quick is None


def test_what_holds_itself_is_no_trouble() -> None:
    (dump, *_) = dumps(["2.10"])
    listed: list[Any] = []
    listed.append(listed)
    held: dict[str, Any] = {"0": {"ranks": "[0, 1]"}}
    held["itself"] = held
    for config in ({"0": {"ranks": listed}}, held):
        raw = pickle.dumps({**dump, "pg_config": config}, 2)
        quick = columns_of_pickle(raw, Tables())
        assert quick is not None
        assert told(quick) == told(columns_of(load(raw), Tables()))


def test_what_is_nested_without_end_is_left_to_python() -> None:
    (dump, *_) = dumps(["2.10"])
    start = b"\x80\x02}(X\x07\x00\x00\x00entries" + torch_pickle(dump["entries"])[2:-1] + b"X\x09\x00\x00\x00pg_config"
    assert columns_of_pickle(start + b"}u.", Tables()) is not None
    deep = start + b"]" * 100_000 + b"a" * 99_999 + b"u."
    assert columns_of_pickle(deep, Tables()) is None


def test_what_was_never_kept_is_not_asked_for() -> None:
    assert hot is not None
    for raw in (
        b"\x80\x02h\x00.",
        b"\x80\x02j\xff\xff\xff\x7f.",
        b"\x80\x02Nr\xff\xff\xff\x7f.",
        b"\x80\x02N",
        b"\x80\x02a.",
    ):
        assert hot.read_dump(raw) is None
    dump = hot.read_dump(torch_pickle(dumps(["2.10"])[0]))
    assert dump.get("nothing") is None
    for place in (-1, 1 << 40):
        with pytest.raises(IndexError):
            dump.entry(place)
    with pytest.raises(TypeError):
        hot.read_dump("text")
    with pytest.raises(TypeError):
        type(dump)()


MANY = 1000
LONG = "x" * 1_000_000
REPEATED = {
    "input_sizes": [[1] * MANY] * MANY,
    "output_sizes": [[]] * MANY * 20,
    "process_group": (LONG, ""),
    "input_dtypes": [LONG] * MANY,
    "frames": [{"name": "f", "line": 1, "filename": "train.py"}] * MANY * 20,
}


@pytest.mark.parametrize("field", REPEATED)
def test_what_stands_in_many_places_takes_no_longer_than_the_file_allows(field: str) -> None:
    """Of so many entries that are one, each of which has a list, or a text, so often that is one."""
    assert hot is not None
    (dump, *_) = dumps(["2.10"])
    raw = pickle.dumps({**dump, "entries": [{**dump["entries"][0], field: REPEATED[field]}] * MANY}, 2)
    began = time.monotonic()
    assert hot.read_dump(raw).columns() is None
    with pytest.raises(DumpError, match=f"repeats itself: its entries' {field} are more than"):
        columns_of(load(raw), Tables())
    assert time.monotonic() - began < BOUND_S


def test_a_file_named_at_greater_length_than_there_is_is_none() -> None:
    """To find out whose it is all of it is looked at, in each frame."""
    (dump, *_) = dumps(["2.10"])
    frames = [[{"name": f"f{place}", "line": 1, "filename": LONG}] for place in range(MANY)]
    entries = [{**dump["entries"][0], "frames": each} for each in frames]
    raw = pickle.dumps({**dump, "entries": entries}, 2)
    began = time.monotonic()
    assert columns_of_pickle(raw, Tables()) is None
    with pytest.raises(DumpError, match="frame is none"):
        columns_of(load(raw), Tables())
    assert time.monotonic() - began < BOUND_S
