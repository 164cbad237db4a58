"""NFSWorkspace on real ranks."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import StorageError, UsageError
from rankdrill.gathers import NFSWorkspace
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, raiser, replaced


def test_any_rank_reads_any_rank(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        with NFSWorkspace(tmp_path / "deep" / "down", meeting=True, timeout=TIMEOUT_S) as workspace:
            before = workspace.read_configs_and_weights_from_rank(1)
            for turn in range(2):
                workspace.write_configs_and_weights({"rank": rank, "turn": turn}, {"w": torch.full((3,), rank)})
            config, weights = workspace.read_configs_and_weights_from_rank((rank + 1) % 4)
            dist.barrier()
            files = len(os.listdir(tmp_path / "deep" / "down"))
            dist.barrier()
        return before, config["rank"], config["turn"], weights["w"].tolist(), files

    got = world.run(body).unwrap()
    assert got == [((None, None), peer, 1, [peer] * 3, 4) for peer in (1, 2, 3, 0)]
    assert list((tmp_path / "deep" / "down").iterdir()) == []


def test_directories_are_private_whatever_the_umask(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> list[int]:
        before = os.umask(0o002)
        try:
            with NFSWorkspace(tmp_path / "deep" / "down", timeout=TIMEOUT_S):
                return [os.stat(tmp_path / made).st_mode & 0o777 for made in ("deep", "deep/down")]
        finally:
            os.umask(before)

    assert all_alike(world.run(body).unwrap()) == [0o700, 0o700]


def test_target_ranks_are_global(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        group = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
        with NFSWorkspace(tmp_path, group=group, meeting=True, timeout=TIMEOUT_S) as workspace:
            workspace.write_configs_and_weights(dist.get_rank(), {})
            seen = workspace.read_configs_and_weights_from_rank(dist.get_rank() ^ 1)[0]
            with pytest.raises(UsageError, match="target_rank"):
                workspace.read_configs_and_weights_from_rank((dist.get_rank() + 2) % 4)
            dist.barrier(group=group)
        return seen

    assert world.run(body).unwrap() == [1, 0, 3, 2]


def test_without_a_path_it_is_not_initialised(world: rankdrill.World) -> None:
    def body() -> bool:
        workspace = NFSWorkspace(meeting=True, timeout=TIMEOUT_S)
        with pytest.raises(UsageError, match="workspace_path"):
            workspace.write_configs_and_weights({}, {})
        return workspace.is_initialized

    assert all_alike(world.run(body).unwrap()) is False


def test_a_failed_write_leaves_the_pair_before(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> Any:
        with NFSWorkspace(tmp_path, meeting=True, timeout=TIMEOUT_S) as workspace:
            workspace.write_configs_and_weights("first", {})
            with replaced(os, "write", raiser(OSError(28, "full")), dist.get_rank() == 2):
                failed = attempt(workspace.write_configs_and_weights, "second", {})
            seen = workspace.read_configs_and_weights_from_rank(2)
            dist.barrier()
        return failed, seen

    failed, seen = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("StorageError", (2,))
    assert seen == ("first", {})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_changed_is_not_loaded(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    def body() -> str:
        with NFSWorkspace(tmp_path, meeting=True, timeout=TIMEOUT_S) as workspace:
            workspace.write_configs_and_weights("mine", {})
            if dist.get_rank() == 0:
                for file in tmp_path.glob("rankdrill-*"):
                    file.write_bytes(b"x" * file.stat().st_size)
            dist.barrier()
            with pytest.raises(StorageError, match="other content"):
                workspace.read_configs_and_weights_from_rank(1)
            dist.barrier()
        return "refused"

    assert all_alike(world.run(body).unwrap()) == "refused"


def test_different_paths_and_paths_that_cannot_be(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")

    def body() -> Any:
        elsewhere = tmp_path / str(dist.get_rank() == 3)
        return (
            attempt(NFSWorkspace, elsewhere, meeting=True, timeout=TIMEOUT_S),
            attempt(NFSWorkspace, tmp_path if dist.get_rank() else None, meeting=True, timeout=TIMEOUT_S),
            attempt(NFSWorkspace, tmp_path / "file" / "below", meeting=True, timeout=TIMEOUT_S),
        )

    paths, missing, blocked = all_alike(world.run(body).unwrap())
    assert (paths.kind, paths.ranks) == ("ArgumentMismatch", (3,))
    assert (missing.kind, missing.ranks) == ("ArgumentMismatch", (0,))
    assert (blocked.kind, blocked.ranks) == ("StorageError", (0, 1, 2, 3))
