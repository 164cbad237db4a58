"""get_configs_parallel and get_tensors_parallel on real ranks."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.gathers import get_configs_parallel, get_tensors_parallel
from tests.gathers.attempts import TIMEOUT_S, Unloadable, all_alike, attempt, left_in_shared_memory
from tests.gathers.failures import no_memory_to_receive

EVERYONE = [0, 1, 2, 3]


def configs(config: Any, ranks: list[int] = EVERYONE, **kwargs: Any) -> list[Any]:
    with get_configs_parallel(config, ranks, timeout=TIMEOUT_S, **kwargs) as seen:
        return seen


def tensors(tensor: Any, ranks: list[int] = EVERYONE, **kwargs: Any) -> list[Any]:
    with get_tensors_parallel(tensor, ranks, timeout=TIMEOUT_S, **kwargs) as seen:
        return seen


@pytest.mark.parametrize("by_files", [False, True])
def test_the_first_sees_all_and_none_keeps_its_place(
    world: rankdrill.World, tmp_path: pathlib.Path, by_files: bool
) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        config = None if rank == 1 else {"rank": rank, "view": torch.arange(1000)[10:12], "no tensor": "x"}
        seen = configs(config, workspace_path=tmp_path / "workspace" if by_files else None)
        return [one and (one["rank"], one["view"].tolist()) for one in seen], left_in_shared_memory([os.getpid()])

    seen = [(0, [10, 11]), None, (2, [10, 11]), (3, [10, 11])]
    got = world.run(body).unwrap()
    assert [one for one, _ in got] == [seen, [], [], []]
    assert got[0][1] == []
    assert not by_files or list((tmp_path / "workspace").iterdir()) == []


@pytest.mark.parametrize(("ranks", "reader", "seen"), [([2, 3], 2, [2, 3]), ([3, 2], 3, [3, 2]), ([1], 1, [1])])
@pytest.mark.parametrize("by_files", [False, True])
def test_only_some_ranks_take_part(
    world: rankdrill.World,
    tmp_path: pathlib.Path,
    ranks: list[int],
    reader: int,
    seen: list[int],
    by_files: bool,
) -> None:
    def body() -> list[Any]:
        # The others do not call at all; they may, and get an empty list.
        if dist.get_rank() not in [*ranks, 0]:
            return []
        return configs(dist.get_rank(), ranks, workspace_path=tmp_path if by_files else None)

    assert world.run(body).unwrap() == [seen if rank == reader else [] for rank in range(4)]


def test_ranks_are_global_in_a_subgroup(world: rankdrill.World) -> None:
    def body() -> Any:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        first = dist.get_rank() // 2 * 2
        group = groups[dist.get_rank() // 2]
        failed = attempt(configs, Unloadable() if dist.get_rank() == 3 else 1, [first, first + 1], group=group)
        return tensors(torch.tensor(dist.get_rank()), [first, first + 1], group=group), failed

    got = world.run(body).unwrap()
    assert [seen for seen, _ in got] == [[0, 1], [], [2, 3], []]
    assert got[2][1] == got[3][1]
    assert (got[2][1].kind, got[2][1].ranks) == ("DecodeError", (1,))


def test_errors_name_ranks_of_the_group_where_only_some_take_part(world: rankdrill.World) -> None:
    def body() -> Any:
        if dist.get_rank() < 2:
            return None
        return attempt(configs, Unloadable() if dist.get_rank() == 3 else 1, [2, 3])

    failed = all_alike(world.run(body).unwrap()[2:])
    assert (failed.kind, failed.ranks) == ("DecodeError", (3,))
    assert "payload of rank 3 does not load" in failed.text


def test_tensors_are_writable_copies_of_any_size(world: rankdrill.World) -> None:
    def body() -> Any:
        mine = torch.full((dist.get_rank() * 1000,), 1.0)
        seen = tensors(mine)
        for tensor in seen:
            tensor += 1
        return [tensor.sum().item() for tensor in seen], mine.sum().item()

    got = world.run(body).unwrap()
    assert got[0] == ([0.0, 2000.0, 4000.0, 6000.0], 0.0)
    assert [own for _, own in got] == [0.0, 1000.0, 2000.0, 3000.0]


def test_an_error_in_the_body_is_that_ranks_own(world: rankdrill.World) -> None:
    def body() -> Any:
        caught = ""
        try:
            with get_configs_parallel({"t": torch.ones(5000)}, EVERYONE, timeout=TIMEOUT_S) as seen:
                if seen:
                    raise KeyError("mine")
        except KeyError as error:
            caught = str(error)
        return caught, len(configs(1)), left_in_shared_memory([os.getpid()])

    assert world.run(body).unwrap() == [("'mine'", 4, []), ("", 0, []), ("", 0, []), ("", 0, [])]


@pytest.mark.parametrize("rank", [0, 2])
def test_memory_that_the_first_cannot_have(world: rankdrill.World, rank: int) -> None:
    def body() -> tuple[Any, int]:
        with no_memory_to_receive(dist.get_rank() == rank):
            failed = attempt(configs, {"t": torch.ones(50_000)})
        return failed, len(configs(1))

    got = world.run(body).unwrap()
    assert [n for _, n in got] == [4, 0, 0, 0]
    if rank == 0:
        failed = all_alike([failed for failed, _ in got])
        assert failed.ranks == (0,)
        assert "none left" in failed.text


def test_ranks_that_are_impossible(world: rankdrill.World) -> None:
    def body() -> str:
        for ranks in ([], [1, 1], [0, 9]):
            with pytest.raises(UsageError, match="distinct global ranks"):
                configs(1, ranks)
        return "refused"

    assert all_alike(world.run(body).unwrap()) == "refused"


def test_ranks_that_disagree(world: rankdrill.World) -> None:
    def body() -> Any:
        return attempt(configs, 1, [0, 1, 2, 3] if dist.get_rank() else [1, 0, 2, 3])

    failed = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (0,))


def test_what_is_no_tensor(world: rankdrill.World) -> None:
    failed = all_alike(world.run(lambda: attempt(tensors, "no" if dist.get_rank() == 2 else torch.ones(1))).unwrap())
    assert (failed.kind, failed.ranks) == ("EncodeError", (2,))
