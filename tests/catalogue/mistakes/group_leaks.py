"""Leaked group: made again and again, and never destroyed."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.catalogue.programs import Rank, mistake


@mistake("leaked group", culprits=(0, 1), ranks=2)
def a_group_for_each_step(rank: Rank) -> None:
    for _ in range(12):
        group = dist.new_group([0, 1])  # culprit
        dist.all_reduce(torch.ones(2), group=group)


@mistake("leaked group", culprits=(0, 1, 2, 3), ranks=4)
def pairs_for_each_evaluation(rank: Rank) -> None:
    for _ in range(6):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]  # culprit
        dist.all_reduce(torch.ones(1), group=pairs[rank.index // 2])
    dist.barrier()


@mistake("leaked group", culprits=(0, 1), ranks=2)
def a_mesh_for_each_epoch(rank: Rank) -> None:
    for _ in range(8):
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data", "tensor"))  # culprit
        dist.all_reduce(torch.ones(4), group=mesh.get_group("data"))


@mistake("leaked group", culprits=(2,), ranks=3)
def kept_by_the_one_that_fails_first(rank: Rank) -> None:
    for attempt in range(8):
        group = dist.new_group([0, 1, 2])  # culprit
        try:
            dist.all_reduce(torch.ones(1), group=group)
            if rank.index == 2 and attempt < 7:
                raise TimeoutError("storage is slow")
            dist.destroy_process_group(group)
        except TimeoutError:
            continue
    dist.barrier()


@mistake("leaked group", culprits=(0, 1, 2), ranks=3)
def who_is_on_duty_changes(rank: Rank) -> None:
    """One line, and three groups of two in turn."""
    for turn in range(9):
        pair = sorted({turn % 3, (turn + 2) % 3})
        group = dist.new_group(pair)  # culprit
        if rank.index in pair:
            dist.all_reduce(torch.ones(3), group=group)
