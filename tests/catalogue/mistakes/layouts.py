"""Memory layout: a view with gaps, of which gloo sends and overwrites what lies in them, and says nothing."""

from __future__ import annotations

import torch
import torch.distributed as dist

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
