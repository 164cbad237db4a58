"""Dumps cut off at every byte, with each bit flipped, and with pieces of others: a diagnosis, or one clear error."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankdrill.errors import DumpError
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.flight.columns import Columns, Tables, columns_of
from rankdrill.explain.flight.explained import explain_dumps
from rankdrill.explain.flight.load import load
from rankdrill.explain.flight.quick import columns_of_pickle
from tests.explain.flights import Flight, Op, dump_of, recv, send, told, torch_pickle, write

SEED = 20
SPLICED = 6000
EXPLAINED_EVERY = 61  # mutants of one file, which is explained beside the other ranks' dumps


def flight() -> Flight:
    calls = [Op("all_reduce"), send(1), Op("coalesced", sizes=())]
    other = [Op("all_reduce"), recv(0), Op("coalesced", sizes=())]
    return Flight({0: calls, 1: other, 2: [Op("all_reduce")]})


def raws() -> tuple[bytes, bytes]:
    dump = dump_of(flight(), 0)
    dump["entries"] = dump["entries"][:2]
    return torch_pickle(dump), json.dumps(dump, separators=(",", ":")).encode()


def mutants(raw: bytes) -> Iterator[bytes]:
    """Cut off at every byte, and with every bit flipped."""
    yield from (raw[:end] for end in range(len(raw)))
    for place, byte in enumerate(raw):
        for bit in range(8):
            yield raw[:place] + bytes([byte ^ (1 << bit)]) + raw[place + 1 :]


def spliced(raw: bytes) -> Iterator[bytes]:
    """With pieces moved, doubled, and replaced by opcodes."""
    drawn = random.Random(SEED)
    for _ in range(SPLICED):
        first, end, at = (drawn.randrange(len(raw)) for _ in range(3))
        piece = raw[min(first, end) : max(first, end)] if drawn.random() < 0.6 else drawn.randbytes(drawn.randint(1, 9))
        yield raw[:at] + piece + raw[at + drawn.randrange(16) :]


def read(raw: bytes) -> Columns | None:
    """As both ways have it: the quick one reads nothing that the other does not, and nothing else of it."""
    tables, own = Tables(), Tables()
    quick = columns_of_pickle(raw, own)
    try:
        columns = columns_of(load(raw), tables)
    except DumpError:
        columns = None
    if quick is not None:
        assert columns is not None, raw
        assert (told(quick), own) == (told(columns), tables), raw
    return columns


@pytest.mark.parametrize("kind", ["pickle", "JSON"])
def test_every_mutant_is_read_or_is_one_error(kind: str) -> None:
    raw = raws()[kind == "JSON"]
    assert read(raw) is not None
    every = [*mutants(raw), *spliced(raw)]
    outcomes = [read(mutant) is not None for mutant in every]
    assert len(every) > 10_000
    assert 0 < sum(outcomes) < len(every)


@pytest.mark.parametrize("kind", ["pickle", "JSON"])
def test_the_others_are_explained_beside_a_mutant(kind: str, tmp_path: Path) -> None:
    write(flight(), tmp_path, prefix="rank_")
    (tmp_path / "rank_0").unlink()
    raw = raws()[kind == "JSON"]
    for mutant in list(mutants(raw))[::EXPLAINED_EVERY]:
        (tmp_path / "rank_0").write_bytes(mutant)
        explained = explain_dumps([tmp_path])
        assert isinstance(explained, Explanation)
        assert explained.world_size >= 3


def wrong_values() -> Iterator[tuple[str, Any]]:
    value: Any
    for key in dump_of(flight(), 0)["entries"][0]:
        for value in (None, -1, 1 << 80, "", "\x1b[31m", [], [[]], [[[]]], [["x"]], {}, {"a": 1}, 0.5, True, [None]):
            yield key, value


def test_values_of_other_types_are_read_or_are_one_error(tmp_path: Path) -> None:
    write(flight(), tmp_path, prefix="rank_")
    for key, value in wrong_values():
        dump = dump_of(flight(), 0)
        dump["entries"][0][key] = value
        (tmp_path / "rank_0").write_bytes(pickle.dumps(dump))
        assert explain_dumps([tmp_path]).world_size == 3


def test_values_that_double_again_and_again_are_looked_at_no_deeper_than_they_may_go(tmp_path: Path) -> None:
    """What takes a kilobyte to write takes for ever to print, to compare, or to hash."""
    write(flight(), tmp_path, prefix="rank_")
    listed: list[Any] = []
    paired: tuple[Any, ...] = ()
    for _ in range(60):
        listed, paired = [listed, listed], (paired, paired)
    entry = dump_of(flight(), 0)["entries"][0]
    for value in (listed, paired):
        for key in entry:
            (tmp_path / "rank_0").write_bytes(
                pickle.dumps({**dump_of(flight(), 0), "entries": [{**entry, key: value}]})
            )
            assert explain_dumps([tmp_path]).world_size == 3
        for key in dump_of(flight(), 0):
            (tmp_path / "rank_0").write_bytes(pickle.dumps({**dump_of(flight(), 0), key: value}))
            assert explain_dumps([tmp_path]).world_size == 3


PARTS: tuple[Any, ...] = (
    None,
    1,
    "x",
    [],
    [1],
    {"a": 1},
    {"0": {}},
    {"0": {"ranks": "[99999999]"}},
    {"0": {"ranks": [[1]]}},
)


@pytest.mark.parametrize("key", ["version", "pg_config", "pg_status", "entries"])
def test_parts_of_other_types_are_read_or_are_one_error(key: str, tmp_path: Path) -> None:
    write(flight(), tmp_path, prefix="rank_")
    for value in PARTS:
        (tmp_path / "rank_0").write_bytes(torch_pickle({**dump_of(flight(), 0), key: value}))
        assert explain_dumps([tmp_path]).world_size == 3
