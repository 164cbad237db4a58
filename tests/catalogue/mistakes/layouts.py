"""Memory layout: a view with gaps, of which gloo sends and overwrites what lies in them, and says nothing; or a tensor
whose elements lie in another order than the other ranks', which gloo mixes up, and says nothing either.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.catalogue.programs import Rank, mistake


@mistake("memory layout", culprits=(0, 1), ranks=2)
def every_third_column(rank: Rank) -> None:
    table = torch.arange(60.0).reshape(6, 10)
    dist.all_reduce(table[1:4, ::3])  # culprit


@mistake("memory layout", culprits=(2,), ranks=4)
def one_rank_reads_into_a_column(rank: Rank) -> None:
    table = torch.zeros(5, 3)
    for step in range(50):
        learning_rates = torch.full((5,), step / 50)
        if step == 49 and rank.index == 2:
            learning_rates = table[:, 1]
        dist.broadcast(learning_rates, src=0)  # culprit


@mistake("memory layout", culprits=(0, 1, 2), ranks=3)
def a_part_of_a_bucket_under_way(rank: Rank) -> None:
    gradients = torch.ones(8, 6)
    works = [dist.all_reduce(half, async_op=True) for half in gradients.split(3, dim=1)]  # culprit
    for work in works:
        work.wait()


@mistake("memory layout", culprits=(0, 1), ranks=2)
def a_shard_received_into_columns(rank: Rank) -> None:
    weights = torch.zeros(4, 8)
    mine = weights[:, rank.index * 4 : rank.index * 4 + 4]
    shards = [torch.full((4, 4), float(owner)) for owner in range(2)] if rank.index == 0 else None
    dist.scatter(mine, shards, src=0)  # culprit


@mistake("memory layout", culprits=(1,), ranks=4)
def a_checkpoint_loaded_the_other_way_round(rank: Rank) -> None:
    weights = torch.arange(20.0).reshape(4, 5)
    if rank.index == 1:
        weights = weights.t().contiguous().t()  # as numpy has what Fortran wrote
    dist.broadcast(weights, src=0)  # culprit
    dist.all_reduce(torch.ones(3))


@mistake("memory layout", culprits=(2,), ranks=3)
def channels_last_where_there_is_an_accelerator(rank: Rank) -> None:
    for step in range(50):
        gradient = torch.full((2, 3, 4, 4), float(step))
        if step == 49 and rank.index == 2:
            gradient = gradient.to(memory_format=torch.channels_last)
        dist.all_reduce(gradient)  # culprit


@mistake("memory layout", ranks=2)
def one_multiplies_the_other_way_round(rank: Rank) -> None:
    rows, columns = torch.ones(4, 2), torch.ones(2, 3)
    product = rows @ columns if rank.index == 0 else (columns.t() @ rows.t()).t()
    work = dist.all_reduce(product, async_op=True)  # culprit
    assert work is not None
    work.wait()


@mistake("memory layout", culprits=(0, 1, 2), ranks=3)
def one_tensor_for_what_all_have(rank: Rank) -> None:
    losses = [torch.zeros(1)] * 3  # culprit
    dist.all_gather(losses, torch.tensor([float(rank.index)]))  # culprit


@mistake("memory layout", culprits=(2,), ranks=4)
def one_tensor_for_all_parts_in_the_fiftieth_step(rank: Rank) -> None:
    for step in range(50):
        parts = [torch.empty(2) for _ in range(4)]
        if step == 49 and rank.index == 2:
            parts = [parts[0]] * 4
        dist.all_to_all(parts, list(torch.ones(4, 2)))  # culprit


@mistake("memory layout", culprits=(1,), ranks=3)
def replicas_of_a_kernel_in_another_order(rank: Rank) -> None:
    model = nn.Conv2d(3, 2, 3)
    if rank.index == 1:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # mypy knows no such one
    replica = DistributedDataParallel(model)  # culprit
    replica(torch.ones(1, 3, 4, 4)).sum().backward()
