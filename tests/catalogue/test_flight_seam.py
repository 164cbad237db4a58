"""What is borrowed from torch for the flight recorder is still there, and what is mended is still broken.

A new torch that fails here has changed one of them: then `benchmarks/cataloguing/flight_seam.py` and what it says of
gloo want another look.
"""

from __future__ import annotations

import gc
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from benchmarks.cataloguing.flight_reading import KIND_OF
from benchmarks.cataloguing.flight_seam import PREFIX, Mismatch, is_there, mismatches, trace
from torch._C import _distributed_c10d

from rankdrill import World

pytestmark = pytest.mark.skipif(not is_there(), reason="this torch has no flight recorder for gloo")

DEADLINE_S = 60.0


def raw_and_mended() -> tuple[bytes, bytes]:
    """On a rank: calls on two groups, one of which is gone, a message, and what the recorder has of them."""
    rank, ones = dist.get_rank(), torch.ones(2)
    dist.new_group([0])
    passing = dist.new_group([0, 1])
    dist.all_reduce(ones)
    dist.all_reduce(ones, group=passing)
    dist.destroy_process_group(passing)
    _ = dist.send(ones, 1) if rank == 0 else dist.recv(ones, 0)
    dist.broadcast(ones, 0)
    return _distributed_c10d._dump_fr_trace(), trace()  # type: ignore[attr-defined]  # torch has no stub of it


@pytest.fixture(scope="module")
def dumped() -> list[tuple[bytes, bytes]]:
    with World(2) as world:
        return world.run(raw_and_mended, deadline=DEADLINE_S).unwrap()


def analyzed(dumps: list[Any], directory: Path) -> list[Mismatch]:
    for rank, dump in enumerate(dumps):
        (directory / f"{PREFIX}{rank}").write_bytes(pickle.dumps(dump))
    return mismatches(directory)[0]


def test_gloo_records_collectives_and_no_messages(dumped: list[tuple[bytes, bytes]]) -> None:
    entries = pickle.loads(dumped[0][0])["entries"]
    names = [entry["profiling_name"] for entry in entries]
    assert [name for name in names if name in ("gloo:all_reduce", "gloo:broadcast")][-3:] == [
        "gloo:all_reduce",
        "gloo:all_reduce",
        "gloo:broadcast",
    ]
    assert not [name for name in names if "send" in name], "messages are recorded by now"
    last = entries[-1]
    assert (last["input_sizes"], last["input_dtypes"], last["state"]) == ([[2]], ["Float"], "scheduled")
    assert any(frame["filename"] == __file__ for frame in last["frames"])


def test_a_dump_of_gloo_does_not_name_its_groups(dumped: list[tuple[bytes, bytes]]) -> None:
    assert set(pickle.loads(dumped[0][0])["pg_config"]) == {""}, "torch names gloo's groups by now: trace() need not"


@pytest.mark.filterwarnings("ignore:.*'typing._eval_type'.*:DeprecationWarning")  # from Python 3.13 on, when imported
def test_without_them_the_analyzer_fails(dumped: list[tuple[bytes, bytes]], tmp_path: Path) -> None:
    from torch.distributed.flight_recorder.fr_trace import main

    for rank, (raw, _) in enumerate(dumped):
        (tmp_path / f"{PREFIX}{rank}").write_bytes(raw)
    try:
        with pytest.raises(KeyError):
            main([str(tmp_path), "-p", PREFIX, "--allow-incomplete-ranks"])
    finally:
        gc.enable()


def test_with_them_it_finds_nothing_where_nothing_is(dumped: list[tuple[bytes, bytes]], tmp_path: Path) -> None:
    assert analyzed([pickle.loads(mended) for _, mended in dumped], tmp_path) == []
    assert gc.isenabled()
    assert not logging.getLogger("Flight Recorder").filters


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("profiling_name", "gloo:barrier", "COLLECTIVE_TYPE_MISMATCH"),
        ("input_sizes", [[3]], "SIZE_OR_SYNTAX_MISMATCH"),
        ("output_dtypes", ["Half"], "COLLECTIVE_DTYPE_MISMATCH"),
    ],
)
def test_what_differs_is_found(
    dumped: list[tuple[bytes, bytes]], tmp_path: Path, key: str, value: object, kind: str
) -> None:
    dumps = [pickle.loads(mended) for _, mended in dumped]
    dumps[1]["entries"][-1][key] = value
    (found,) = analyzed(dumps, tmp_path)
    assert found.expected == {0, 1}
    assert dict(found.errors) == {1: kind}
    assert not found.absent
    assert __file__ in found.frames[1]
    assert __file__ in found.shown


def test_whoever_does_not_join_is_found(dumped: list[tuple[bytes, bytes]], tmp_path: Path) -> None:
    dumps = [pickle.loads(mended) for _, mended in dumped]
    del dumps[1]["entries"][-1]
    (found,) = analyzed(dumps, tmp_path)
    assert found.absent == {1}
    assert not found.errors
    assert not found.undumped


def test_of_a_rank_without_a_dump_it_says_so(dumped: list[tuple[bytes, bytes]], tmp_path: Path) -> None:
    found = analyzed([pickle.loads(dumped[0][1])], tmp_path)
    assert found[0].undumped == {1}


def test_the_kinds_are_the_analyzers() -> None:
    from torch.distributed.flight_recorder.components.types import MatchState

    assert set(KIND_OF) < set(MatchState.__members__)
