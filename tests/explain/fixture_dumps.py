"""Writes the dumps of fixtures/flight and fixtures/hostile: `python -m tests.explain.fixture_dumps fixtures`.

Made up, as torch's versions spell them (`flights.py` says where from), is a job of four ranks in which rank 2 leaves a
call out; real, by the torch that is installed, are runs on gloo in which a rank is late (`recording.py`). What is there
stays as it is: a dump that has once been read has to be read ever after.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rankdrill import World
from tests.explain.flights import VERSIONS, Flight, Op, as_torchcomms, torch_pickle, write
from tests.explain.recording import late_in_a_group, late_rank, well
from tests.explain.test_opcodes import AT, HOSTILE, START, doubled

__all__ = ["JSON_VERSIONS", "REAL", "hostile_files", "write_all"]

JSON_VERSIONS = ("2.4", "2.10", "2.11")
ROUNDS = 3
DEADLINE_S = 120.0
REAL: dict[str, tuple[Callable[..., None], int, tuple[Any, ...]]] = {
    "late": (late_rank, 3, (1,)),
    "late-in-a-group": (late_in_a_group, 4, (2, [1, 2, 3])),
    "well": (well, 3, ()),
}
_OF_THIS_MACHINE = re.compile(r"^.*?/(?=tests/|torch/|rankdrill/|multiprocessing/|runpy\.py|threading\.py)")


def made_up(version: str = "2.10") -> Flight:
    """Four ranks, of which rank 2 leaves a broadcast out."""
    step = [Op("all_reduce", line=41), Op("broadcast", line=44), Op("all_reduce", sizes=((8,),), line=52)]
    calls = {rank: [op for at, op in enumerate(step * ROUNDS) if (rank, at) != (2, 7)] for rank in range(4)}
    return Flight(calls, version=version)


def hostile_files() -> Iterator[tuple[str, bytes]]:
    """Pickles with each opcode that could import or call, and others that would take for ever, or all memory."""
    yield from ((f"{name}.pickle", START + raw) for name, raw in HOSTILE.items())
    yield "reduce-inside.pickle", pickle.dumps({"version": "2.10", "entries": [{"frames": _Calls()}]})
    yield "keys-that-double.pickle", doubled(60, keep=b"q%c")
    yield "index-without-bounds.pickle", START + b"}r" + (1 << 30).to_bytes(4, "little") + b"."
    yield "text-that-is-not-there.pickle", START + b"X" + (1 << 31).to_bytes(4, "little") + b"abc"
    yield "long-number.pickle", START + b"\x8a\xff" + bytes(255) + b"."
    yield "protocol-of-the-future.pickle", b"\x80\x07."
    yield "cut-off.pickle", torch_pickle(made_up().dump(0))[: AT + 500]
    yield "nested-lists.pickle", START + b"]" * 20_000 + b"."
    yield "nested.json", b'{"entries":' * 20_000
    yield "cut-off.json", json.dumps(made_up().dump(0)).encode()[:500]
    yield "endless-number.json", b'{"entries": ' + b"9" * 10_000 + b"}"
    yield "not-utf8.json", b'{"entries": "\xff"}'
    yield "entries-of-numbers.json", b'{"version": "2.10", "entries": [1, 2, 3]}'
    yield "zeros.pickle", bytes(512)
    yield "empty.pickle", b""


class _Calls:
    """What Python's own unpickler would call."""

    def __reduce__(self) -> Any:
        return os.system, ("echo this was run >&2",)


def write_all(folder: Path) -> None:
    """Write them where they are not there yet."""
    flight = folder / "flight"
    for version in VERSIONS:
        _once(flight / version, partial(_write, made_up(version), prefix="rank_"))
    for version in JSON_VERSIONS:
        _once(flight / f"{version}-json", partial(_as_json, made_up(version)))
    for backend in ("ncclx", "gloo"):
        _once(flight / f"torchcomms-{backend}", partial(_of_torchcomms, backend))
    for name, (body, ranks, more) in REAL.items():
        of_torch = f"torch-{torch.__version__.partition('+')[0]}-gloo-{name}"
        _once(flight / of_torch, partial(_real, body, ranks, more))
    for name, raw in hostile_files():
        _once(folder / "hostile" / name, partial(_put, raw))


def _once(place: Path, make: Callable[[Path], object]) -> None:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        make(place)


def _write(flight: Flight, place: Path, *, prefix: str) -> None:
    write(flight, place, prefix=prefix)


def _put(raw: bytes, place: Path) -> None:
    place.write_bytes(raw)


def _as_json(flight: Flight, place: Path) -> None:
    write(flight, place, as_json=True, prefix="rank_")
    for file in place.iterdir():
        dump = json.loads(file.read_text())
        for entry in dump["entries"]:
            del entry["frames"]  # which torch's JSON has not
        file.write_text(json.dumps(dump, separators=(",", ":")))


def _of_torchcomms(backend: str, place: Path) -> None:
    place.mkdir()
    for rank in range(4):
        dump = as_torchcomms(made_up(), rank, backend=backend)
        (place / f"comm_lib_trace_rank_{rank}").write_bytes(torch_pickle(dump))


def _real(body: Callable[..., None], ranks: int, more: tuple[Any, ...], place: Path) -> None:
    """Pickles and JSON of a real run, without the paths of this machine."""
    place.mkdir()
    with tempfile.TemporaryDirectory() as directory, World(ranks) as world:
        world.run(body, directory, *more, deadline=DEADLINE_S).unwrap()
        for file in sorted(Path(directory).iterdir()):
            raw = file.read_bytes()
            if file.suffix != ".json":  # of our own ranks
                raw = torch_pickle(_without_paths(pickle.loads(raw)))
            (place / file.name).write_bytes(raw)


def _without_paths(dump: dict[str, Any]) -> dict[str, Any]:
    for entry in dump["entries"]:
        for frame in entry["frames"]:
            file = _OF_THIS_MACHINE.sub("/venv/lib/python3/site-packages/", frame["filename"])
            frame["filename"] = file.replace("/venv/lib/python3/site-packages/tests/", "/job/tests/")
    return dump


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
