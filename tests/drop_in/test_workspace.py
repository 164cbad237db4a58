"""NFSWorkspace as its callers have it: ranks write and read when they like, and nobody waits for anybody."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import EncodeError, StorageError, UsageError
from rankdrill.gathers import NFSWorkspace
from rankdrill.gathers.host import liveness
from rankdrill.gathers.storage import files
from tests.gathers.attempts import TIMEOUT_S, all_alike, raiser, replaced

RANKS = 3


@pytest.fixture(scope="module")
def world() -> Any:
    with rankdrill.World(RANKS) as world:
        yield world


def test_the_first_rank_reads_what_the_others_wrote_and_writes_nothing(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        workspace = NFSWorkspace(tmp_path / "deep", timeout=TIMEOUT_S)
        if rank:
            workspace.write_configs_and_weights({"rank": rank}, {"weight": torch.full((2,), rank)})
        dist.barrier()
        pairs = [workspace.read_configs_and_weights_from_rank(each) for each in range(RANKS)] if rank == 0 else []
        dist.barrier()
        workspace.close()
        return [config and (config["rank"], weights["weight"].tolist()) for config, weights in pairs]

    first, *others = world.run(body).unwrap()
    assert first == [None, (1, [1, 1]), (2, [2, 2])]
    assert others == [[], []]
    assert list((tmp_path / "deep").iterdir()) == []


def test_nobody_waits_for_a_rank_that_never_makes_one(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        if dist.get_rank() == 2:
            return None
        began = time.monotonic()
        workspace = NFSWorkspace(tmp_path)
        workspace.write_configs_and_weights(dist.get_rank(), None)
        own = workspace.read_configs_and_weights_from_rank(dist.get_rank())
        return own, workspace.read_configs_and_weights_from_rank(2), time.monotonic() - began < TIMEOUT_S

    found = world.run(body).unwrap()
    assert found == [((0, None), (None, None), True), ((1, None), (None, None), True), None]


def test_any_object_on_the_path_reads_any_ranks_pair(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        os.chdir(tmp_path)
        NFSWorkspace("here", timeout=TIMEOUT_S).write_configs_and_weights(rank, "of an object that is gone")
        dist.barrier()
        group = dist.new_group([0, 1, 2])
        other = NFSWorkspace(tmp_path / "here", group=group, timeout=TIMEOUT_S)
        found = [other.read_configs_and_weights_from_rank(each)[0] for each in range(RANKS)]
        elsewhere = NFSWorkspace(tmp_path / "there", timeout=TIMEOUT_S).read_configs_and_weights_from_rank(rank)
        dist.barrier()
        other.close()
        return found, elsewhere, other.read_configs_and_weights_from_rank(rank)

    assert all_alike(world.run(body).unwrap()) == ([0, 1, 2], (None, None), (None, None))


def test_what_it_shows(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        bare, workspace = NFSWorkspace(), NFSWorkspace(str(tmp_path), timeout=TIMEOUT_S)
        before = workspace.state_path
        workspace.write_configs_and_weights(1, 2)
        first = workspace.state_path
        workspace.write_configs_and_weights(1, 3)
        second = workspace.state_path
        assert first is not None
        assert second is not None
        there = before == first, first.exists(), second.exists(), second.parent == workspace.path
        dist.barrier()
        workspace.close()
        return bare.path, bare.state_path, bare.is_initialized, workspace.path, workspace.rank, there

    for rank, told in enumerate(world.run(body).unwrap()):
        assert told == (None, None, False, tmp_path, rank, (True, False, True, True))


def test_a_pair_of_another_run_is_not_found(tmp_path: Path) -> None:
    def body() -> Any:
        workspace = NFSWorkspace(tmp_path, timeout=TIMEOUT_S)
        found = workspace.read_configs_and_weights_from_rank(1)
        dist.barrier()
        workspace.write_configs_and_weights(dist.get_rank(), None)
        dist.barrier()
        return found, workspace.read_configs_and_weights_from_rank(1), len(os.listdir(tmp_path))

    for _ in range(2):  # ranks are killed at the end of their world: what they left is there, and swept
        with rankdrill.World(2) as world:
            assert all_alike(world.run(body).unwrap()) == ((None, None), (1, None), 2)


def test_what_a_rank_left_that_has_died_is_not_taken_for_its_pair(world: rankdrill.World, tmp_path: Path) -> None:
    """It may have been restarted, and the pair be an older one's."""

    def body() -> Any:
        workspace = NFSWorkspace(tmp_path, timeout=TIMEOUT_S)
        workspace.write_configs_and_weights(dist.get_rank(), None)
        dist.barrier()
        first = dist.get_rank() == 0
        with (
            replaced(liveness, "_stat", raiser(FileNotFoundError()), first),
            replaced(liveness, "_answers", lambda pid: False, first),
        ):
            found = workspace.read_configs_and_weights_from_rank(1)
        dist.barrier()
        workspace.close()
        return found

    assert world.run(body).unwrap() == [(None, None), (1, None), (1, None)]


def test_a_reader_bears_with_a_file_that_is_not_seen_yet(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        workspace = NFSWorkspace(tmp_path, timeout=TIMEOUT_S)
        workspace.write_configs_and_weights(rank, None)
        dist.barrier()
        state = workspace.state_path
        assert state is not None
        hidden = state.with_name("hidden")
        if rank == 1:
            state.rename(hidden)
        dist.barrier()
        if rank == 1:
            time.sleep(0.5)
            hidden.rename(state)
        found = workspace.read_configs_and_weights_from_rank(1)
        dist.barrier()
        workspace.close()
        return found

    assert all_alike(world.run(body).unwrap()) == (1, None)


def test_a_reader_gets_a_whole_pair_while_it_is_replaced(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        workspace = NFSWorkspace(tmp_path, timeout=TIMEOUT_S)
        workspace.write_configs_and_weights(0, torch.zeros(50_000))
        dist.barrier()
        seen = []
        for turn in range(1, 40):
            if rank == 1:
                workspace.write_configs_and_weights(turn, torch.full((50_000,), float(turn)))
            else:
                config, weights = workspace.read_configs_and_weights_from_rank(1)
                assert bool((weights == config).all())
                seen.append(config)
        dist.barrier()
        workspace.close()
        return seen == sorted(seen)

    assert all(world.run(body).unwrap())


def test_what_fails_is_the_ranks_own_and_the_pair_before_stays(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        workspace = NFSWorkspace(tmp_path, timeout=TIMEOUT_S)
        workspace.write_configs_and_weights("first", rank)
        told = []
        if rank == 1:
            with replaced(os, "write", raiser(OSError(28, "full"))), pytest.raises(StorageError) as full:
                workspace.write_configs_and_weights("second", rank)
            with pytest.raises(EncodeError) as refused:
                workspace.write_configs_and_weights(lambda: 0, rank)
            told = [str(full.value), str(refused.value)]
            assert isinstance(refused.value.__cause__, Exception)
        found = workspace.read_configs_and_weights_from_rank(rank)
        dist.barrier()
        left = len(os.listdir(tmp_path))
        dist.barrier()
        workspace.close()
        return told, found, left

    for rank, (told, found, left) in enumerate(world.run(body).unwrap()):
        assert found == ("first", rank)
        assert left == RANKS
        assert [line.partition(". rank 1: ")[0] for line in told] == (
            ["NFSWorkspace.write_configs_and_weights failed"] * 2 if rank == 1 else []
        )


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"NFSWorkspace failed\. rank 0: \w+Error: .*file"):
        NFSWorkspace(tmp_path / "file" / "below")


def test_without_any_group(tmp_path: Path) -> None:
    with NFSWorkspace(tmp_path) as workspace:
        assert workspace.read_configs_and_weights_from_rank(0) == (None, None)
        workspace.write_configs_and_weights({"a": 1}, [2])
        assert NFSWorkspace(tmp_path).read_configs_and_weights_from_rank(0) == ({"a": 1}, [2])
        with pytest.raises(UsageError, match="target_rank=1"):
            workspace.read_configs_and_weights_from_rank(1)
    assert os.listdir(tmp_path) == []


def test_what_was_put_there_by_somebody_else_is_not_loaded(world: rankdrill.World, tmp_path: Path) -> None:
    def body() -> Any:
        workspace = NFSWorkspace(tmp_path, timeout=TIMEOUT_S)
        workspace.write_configs_and_weights(dist.get_rank(), None)
        state = workspace.state_path
        assert state is not None
        if dist.get_rank() == 1:
            state.write_bytes(b"x" * state.stat().st_size)
        dist.barrier()
        with replaced(files, "STALE_S", 0.1), pytest.raises(StorageError, match="other content than its rank wrote"):
            workspace.read_configs_and_weights_from_rank(1)
        dist.barrier()
        workspace.close()
        return "refused"

    assert all_alike(world.run(body).unwrap()) == "refused"
