"""Checkpoints that are damaged, bent or traps: each is refused with an error that says so, and nothing in it is run."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rankdrill
from rankdrill.errors import DecodeError, GatherError, StorageError
from rankdrill.gathers import load_checkpoint
from tests.fixtures import fixture
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt
from tests.little_memory import little_memory

FOLDER = fixture("checkpoints")
ROOM_BYTES = 256 << 20  # for reading a file of some kB
BOUND_S = 0.5  # of CPU for refusing it; to inflate what the bomb holds takes longer
PROOF = "executed"  # the directory that the traps make

LOADS = {"whole", "billion-laughs"}  # of the latter every list is there once, and nothing walks them
DAMAGED = "torn or damaged, or no checkpoint"
BENT = "is a checkpoint whose parts do not fit together: "

REFUSED: dict[str, tuple[type[GatherError], str]] = {
    "empty": (StorageError, DAMAGED),
    "zeros": (StorageError, DAMAGED),
    "torn": (StorageError, DAMAGED),
    "torn-inside": (StorageError, DAMAGED),
    "last-bytes-missing": (StorageError, DAMAGED),
    "followed-by-rubbish": (StorageError, DAMAGED),
    "bit-flipped-in-weights": (StorageError, DAMAGED),
    "bit-flipped-in-pickle": (StorageError, DAMAGED),
    "bit-flipped-in-list": (StorageError, DAMAGED),
    "bit-flipped-in-header": (StorageError, DAMAGED),
    "bit-flipped-in-flags": (StorageError, DAMAGED),
    "compressed": (StorageError, "the file is compressed, which torch.save never does"),
    "a-list": (StorageError, "not written by gather_and_save_checkpoint"),
    "another-format": (StorageError, "not written by gather_and_save_checkpoint"),
    "format-is-a-tensor": (StorageError, "not written by gather_and_save_checkpoint"),
    "future-version": (StorageError, "has version 2 of the format, this rankdrill reads 1"),
    "version-in-words": (StorageError, BENT + "version"),
    "version-of-endless-length": (StorageError, BENT + "version"),
    "version-of-many-digits": (DecodeError, "shared_state does not load"),
    "no-version": (StorageError, BENT + "version"),
    "no-id": (StorageError, BENT + "id"),
    "id-of-endless-length": (StorageError, BENT + "id"),
    "no-shared-state": (StorageError, BENT + "shared_state"),
    "no-states": (StorageError, BENT + "local_states"),
    "states-are-a-number": (StorageError, BENT + "local_states"),
    "states-are-numbers": (StorageError, BENT + "local_states"),
    "states-are-floats": (StorageError, BENT + "local_states"),
    "state-in-two-dimensions": (StorageError, BENT + "local_states"),
    "state-of-one-byte-repeated": (StorageError, BENT + "local_states"),
    "world-of-three-with-one-state": (StorageError, BENT + "world_size"),
    "world-of-minus-one": (StorageError, BENT + "world_size"),
    "state-is-empty": (DecodeError, "local_state of rank 0 is no archive of torch.save (0 bytes)"),
    "state-torn": (DecodeError, "local_state of rank 0 is no archive of torch.save (788 bytes)"),
    "state-compressed": (DecodeError, "local_state of rank 0 is compressed"),
    "bytes-of-a-terabyte": (DecodeError, "MemoryError"),
    "state-of-a-terabyte": (DecodeError, "MemoryError"),
    "tensor-of-a-terabyte": (DecodeError, "shared_state does not load"),
    "runs-code-bare": (StorageError, DAMAGED),
    "runs-code-bare-old-format": (StorageError, DAMAGED),
    "runs-code-bare-in-local-state": (DecodeError, "local_state of rank 0 is no archive of torch.save (39 bytes)"),
    "runs-code-in-shared-state": (DecodeError, "shared_state holds posix.mkdir, which weights_only=True does not load"),
    "runs-code-in-local-state": (
        DecodeError,
        "local_state of rank 0 holds posix.mkdir, which weights_only",
    ),
    "runs-code-as-local-state": (DecodeError, "holds posix.mkdir, which weights_only=True does not load"),
    "runs-code-as-version": (DecodeError, "holds posix.mkdir, which weights_only=True does not load"),
}


@pytest.fixture(autouse=True)
def nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not os.path.exists(PROOF), "something of the file was run"


def mine(name: str, folder: Path) -> Path:
    """A copy that belongs to whoever runs the tests, as checkpoints must."""
    return Path(shutil.copyfile(FOLDER / f"{name}.pt", folder / f"{name}.pt"))


def first(states: list[Any], rank: int, world_size: int) -> Any:
    return states[0]


def test_every_file_is_spoken_of() -> None:
    assert {path.stem for path in FOLDER.glob("*.pt")} == REFUSED.keys() | LOADS


@pytest.mark.parametrize("name", sorted(LOADS))
def test_what_is_whole_is_loaded(name: str, tmp_path: Path) -> None:
    with little_memory(ROOM_BYTES):
        got = load_checkpoint(mine(name, tmp_path))
    assert (got.local_state["rank"], got.local_state["order"].tolist(), got.world_size) == (0, [0, 1, 2], 1)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_is_refused_and_told_why(name: str, tmp_path: Path) -> None:
    kind, text = REFUSED[name]
    path = mine(name, tmp_path)
    with little_memory(ROOM_BYTES), pytest.raises(GatherError) as caught:
        load_checkpoint(path)
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("weights_only", [True, False])
def test_few_bytes_that_would_become_many_cost_nothing(tmp_path: Path, weights_only: bool) -> None:
    bomb = mine("whole", tmp_path)
    with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        folder = archive.namelist()[0].partition("/")[0]
        with archive.open(f"{folder}/data/9", "w") as entry:
            for _ in range(ROOM_BYTES >> 20):
                entry.write(bytes(1 << 20))
    bomb.chmod(0o600)
    assert bomb.stat().st_size < 4 << 20
    began = time.process_time()
    with little_memory(ROOM_BYTES), pytest.raises(StorageError, match=r"is compressed, which torch\.save never does"):
        load_checkpoint(bomb, weights_only=weights_only)
    assert time.process_time() - began < BOUND_S


def test_all_ranks_refuse_it_together(world: rankdrill.World, tmp_path: Path) -> None:
    paths = [mine(name, tmp_path) for name in REFUSED]

    def body() -> list[Any]:
        with little_memory(ROOM_BYTES):
            return [attempt(load_checkpoint, path, reshard=first, timeout=TIMEOUT_S) for path in paths]

    for name, failed in zip(REFUSED, all_alike(world.run(body).unwrap()), strict=True):
        kind, text = REFUSED[name]
        assert (failed.kind, failed.ranks) == (kind.__name__, (0, 1, 2, 3)), name
        assert text in failed.text, name


def test_the_trap_is_one(tmp_path: Path) -> None:
    """Where the caller says that all of it may be loaded, it is run: so nothing above is harmless by accident."""
    torch.load(mine("runs-code-in-shared-state", tmp_path), weights_only=False)
    os.rmdir(PROOF)
    load_checkpoint(mine("runs-code-in-local-state", tmp_path), weights_only=False)
    os.rmdir(PROOF)
