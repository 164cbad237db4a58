"""Calls as public code makes them: with the arguments in its order, and what it does with what it gets.

After fairseq's and DPR's trainers (`all_gather_list`), MDETR's and sam2's evaluators (`all_gather`), modelopt's export
(`get_configs_parallel`, `get_tensors_parallel`, `NFSWorkspace`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import (
    NFSWorkspace,
    all_gather,
    all_gather_list,
    get_configs_parallel,
    get_tensors_parallel,
)
from tests.gathers.attempts import all_alike

RANKS = 3


@pytest.fixture(scope="module")
def world() -> Any:
    with rankdrill.World(RANKS) as world:
        yield world


def test_a_trainer_adds_up_what_all_ranks_logged(world: rankdrill.World) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        logged = [{"loss": torch.tensor(float(rank)), "ntokens": 10 * rank}]
        others = list(zip(*all_gather_list([logged, 1, False], max_size=16384), strict=True))
        outputs = list(chain.from_iterable(others[0]))
        return sum(float(output["loss"]) for output in outputs), sum(others[1]), any(others[2]), len(outputs)

    assert all_alike(world.run(body).unwrap()) == (3.0, 3, False, 3)


def test_a_trainer_gives_its_group_by_place(world: rankdrill.World) -> None:
    def body() -> Any:
        group = dist.new_group([0, 2])
        return all_gather_list(dist.get_rank(), group, 16384) if dist.get_rank() != 1 else None

    assert world.run(body).unwrap() == [[0, 2], None, [0, 2]]


def test_a_retriever_gathers_vectors_and_puts_its_own_back(world: rankdrill.World) -> None:
    """What arrives of its own has no history: the caller puts in what has."""

    def body() -> Any:
        rank = dist.get_rank()
        vectors = torch.full((2, 3), float(rank), requires_grad=True)
        gathered = all_gather_list([vectors.cpu().detach(), [rank]], max_size=592_000)
        together = torch.cat([vectors if each == rank else item[0] for each, item in enumerate(gathered)])
        together.sum().backward()  # type: ignore[no-untyped-call]
        assert vectors.grad is not None
        return tuple(together.shape), float(vectors.grad.sum()), [item[1] for item in gathered]

    assert all_alike(world.run(body).unwrap()) == ((6, 3), 6.0, [[0], [1], [2]])


@pytest.mark.parametrize("variable", [None, "MDETR_CPU_REDUCE", "MDETR_FILESYS_REDUCE"])
def test_an_evaluator_merges_what_each_rank_has_seen(
    world: rankdrill.World, variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body() -> Any:
        import os

        os.environ["EXP_DIR"] = str(tmp_path)
        if variable:
            os.environ[variable] = "1"
        rank = dist.get_rank()
        merged: dict[int, Any] = {}
        for predictions in all_gather({rank: {"boxes": torch.zeros(rank, 4)}}):
            merged.update(predictions)
        ids = sorted(set(chain.from_iterable(all_gather([rank, rank + 1]))))
        return {image: tuple(found["boxes"].shape) for image, found in merged.items()}, ids

    shapes = {rank: (rank, 4) for rank in range(RANKS)}
    assert all_alike(world.run(body).unwrap()) == (shapes, [0, 1, 2, 3])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("force_cpu", "force_filesys"), [(False, False), (True, False), (False, True)])
def test_a_tracker_says_by_place_how_it_is_to_go(
    world: rankdrill.World, force_cpu: bool, force_filesys: bool, tmp_path: Path
) -> None:
    def body() -> Any:
        return all_gather([{"video": dist.get_rank()}], force_cpu, force_filesys, str(tmp_path))

    assert all_alike(world.run(body).unwrap()) == [[{"video": rank}] for rank in range(RANKS)]


def exported(ranks: list[int], path: Any, group: Any) -> list[Any]:
    """What the first rank of an export makes of the configs of all."""
    merged = []
    rank = dist.get_rank()
    config = {"rank": rank, "weight": torch.full((4,), rank)} if rank != 1 else None
    with get_configs_parallel(config, ranks, group, path) as configs:
        for offered in configs:
            merged.append(None if offered is None else (offered["rank"], int(offered["weight"].sum())))
    return merged


@pytest.mark.parametrize("by", ["memory", "files"])
def test_an_export_merges_configs_on_the_first_rank(world: rankdrill.World, by: str, tmp_path: Path) -> None:
    def body() -> Any:
        path = tmp_path / "workspace" if by == "files" else None
        return exported([0, 1, 2], path, None), exported([2], path, None)

    first, second, third = world.run(body).unwrap()
    assert first == ([(0, 0), None, (2, 8)], [])
    assert second == ([], [])
    assert third == ([], [(2, 8)])


def test_an_export_merges_tensors_on_the_first_rank(world: rankdrill.World) -> None:
    def body() -> Any:
        with get_tensors_parallel(torch.full((4,), dist.get_rank()), [0, 1, 2]) as tensors:
            return torch.cat(tensors).tolist() if tensors else None

    assert world.run(body).unwrap() == [[0] * 4 + [1] * 4 + [2] * 4, None, None]


def read_after_a_barrier(workspace: NFSWorkspace, ranks: list[int]) -> list[Any]:
    """As an export does by files: all but the first rank write, then that one reads them, and its own is at hand."""
    rank = dist.get_rank()
    config, weights = {"rank": rank}, {"weight": torch.full((2,), rank)}
    if rank != ranks[0]:
        workspace.write_configs_and_weights(config, weights)
    dist.barrier()
    if rank != ranks[0]:
        return []
    found = [(config, weights)]
    for other in ranks[1:]:
        theirs, tensors = workspace.read_configs_and_weights_from_rank(other)
        if theirs is not None:
            found.append((theirs, tensors))
    return [(config["rank"], weights["weight"].tolist()) for config, weights in found]


@pytest.mark.parametrize("kept", [True, False], ids=["one object", "an object each time"])
def test_an_export_by_a_workspace(world: rankdrill.World, kept: bool, tmp_path: Path) -> None:
    def body() -> Any:
        make: Callable[[], NFSWorkspace] = lambda: NFSWorkspace(tmp_path / "shared")  # noqa: E731
        workspace = make()
        found = []
        for _ in range(2):
            found.append(read_after_a_barrier(workspace if kept else make(), [0, 1, 2]))
            dist.barrier()
        workspace.close()
        return found

    first, *others = world.run(body).unwrap()
    assert first == [[(0, [0, 0]), (1, [1, 1]), (2, [2, 2])]] * 2
    assert others == [[[], []]] * 2
