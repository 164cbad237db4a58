"""all_gather on real ranks: its routes, and the switches that choose them."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather
from tests.gathers.attempts import TIMEOUT_S, Unloadable, Unpicklable, all_alike, attempt

SWITCHES = ("MDETR_CPU_REDUCE", "MDETR_FILESYS_REDUCE", "MDETR_FILESYS_REDUCE_RANK_0_ONLY")


def gather_switched(switches: dict[str, str], on_rank: int | None, directory: str) -> tuple[Any, Any]:
    """One gather with `switches` set on one rank or all, and one without."""
    mine = switches if on_rank in (None, dist.get_rank()) else {}
    os.environ.update(mine)
    try:
        first = attempt(all_gather, dist.get_rank(), filesys_save_dir=directory, timeout=TIMEOUT_S)
    finally:
        for name in mine:
            del os.environ[name]
    return first, attempt(all_gather, dist.get_rank(), timeout=TIMEOUT_S)


@pytest.mark.parametrize("by_files", [False, True])
@pytest.mark.parametrize("nbytes", [1, 8 << 20])
def test_values_come_in_rank_order(world: rankdrill.World, tmp_path: pathlib.Path, by_files: bool, nbytes: int) -> None:
    def body() -> list[tuple[int, int]]:
        data = bytes([dist.get_rank()]) * nbytes
        got = all_gather(data, force_filesys=by_files, filesys_save_dir=tmp_path / "made", timeout=TIMEOUT_S)
        return [(len(value), value[-1]) for value in got]

    assert all_alike(world.run(body).unwrap()) == [(nbytes, rank) for rank in range(4)]
    assert not by_files or list((tmp_path / "made").iterdir()) == []


@pytest.mark.parametrize("by_files", [False, True])
@pytest.mark.parametrize(("bad", "kind"), [(Unpicklable, "EncodeError"), (Unloadable, "DecodeError")])
def test_a_bad_payload(world: rankdrill.World, tmp_path: pathlib.Path, by_files: bool, bad: type, kind: str) -> None:
    def body() -> tuple[Any, Any]:
        data = bad() if dist.get_rank() == 3 else 1
        route: dict[str, Any] = {"force_filesys": by_files, "filesys_save_dir": tmp_path, "timeout": TIMEOUT_S}
        return attempt(all_gather, data, **route), attempt(all_gather, dist.get_rank(), **route)

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == (kind, (3,))
    assert after == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("switch", SWITCHES[1:])
def test_a_switch_on_one_rank_only(world: rankdrill.World, tmp_path: pathlib.Path, switch: str) -> None:
    got = world.run(gather_switched, {switch: "1"}, 1, str(tmp_path)).unwrap()
    failed, after = all_alike(got)
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (1,))
    assert after == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []


def test_switches_that_are_set_to_0_are_off(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    got = world.run(gather_switched, dict.fromkeys(SWITCHES, "0"), 1, str(tmp_path / "untouched")).unwrap()
    assert all_alike(got) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert not (tmp_path / "untouched").exists()


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_on_all_ranks(world: rankdrill.World, tmp_path: pathlib.Path, switch: str) -> None:
    got = world.run(gather_switched, {switch: "1"}, None, str(tmp_path)).unwrap()
    nothing = "RANK_0_ONLY" in switch
    assert [first for first, _ in got] == [[0, 1, 2, 3]] + [[] if nothing else [0, 1, 2, 3]] * 3


def test_subgroup_and_arguments_that_disagree(world: rankdrill.World) -> None:
    def body() -> Any:
        group = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
        good = all_gather(dist.get_rank(), group=group, timeout=TIMEOUT_S)
        return good, attempt(all_gather, 0, force_filesys=dist.get_rank() == 3, group=group, timeout=TIMEOUT_S)

    got = world.run(body).unwrap()
    assert [good for good, _ in got] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert got[0][1] == [0, 0]
    # Two ranks, two opinions: both are named, as ranks of the group.
    assert got[2][1] == got[3][1]
    assert (got[2][1].kind, got[2][1].ranks) == ("ArgumentMismatch", (0, 1))


def test_without_torch_distributed() -> None:
    value = torch.ones(3)
    (copy,) = all_gather(value)
    assert torch.equal(copy, value)
    assert copy.data_ptr() != value.data_ptr()
