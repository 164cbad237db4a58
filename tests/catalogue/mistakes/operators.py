"""Operator mismatch: one reduction, and ranks that reduce in different ways."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("operator mismatch", culprits=(3,), ranks=4)
def max_for_sum(rank: Rank) -> None:
    op = dist.ReduceOp.MAX if rank.index == 3 else dist.ReduceOp.SUM
    dist.all_reduce(torch.ones(4), op=op)  # culprit


@mistake("operator mismatch", culprits=(1,), ranks=3)
def norms_of_another_order(rank: Rank) -> None:
    """Gradients are clipped by a norm whose order is read from a file that one rank has an old copy of."""
    order = float("inf") if rank.index == 1 else 2.0
    gradient = torch.full((8,), 1.0 + rank.index)
    for _ in range(3):
        norm = torch.linalg.vector_norm(gradient, order)
        if order == float("inf"):
            dist.all_reduce(norm, op=dist.ReduceOp.MAX)  # culprit
        else:
            dist.all_reduce(norm.pow_(order))
        gradient /= norm


@mistake("operator mismatch", ranks=2)
def product_in_the_last_step(rank: Rank) -> None:
    steps, value = 30, torch.ones(2)
    for step in range(steps):
        if rank.index == 1 and step == steps - 1:
            dist.all_reduce(value, op=dist.ReduceOp.PRODUCT)  # culprit
        else:
            dist.all_reduce(value)  # culprit


@mistake("operator mismatch", culprits=(0,), ranks=3)
def the_root_reduces_otherwise(rank: Rank) -> None:
    slowest = torch.tensor([0.1 * rank.index])
    if rank.index == 0:
        dist.reduce(slowest, dst=0)  # culprit
        print("slowest", slowest.item())
    else:
        dist.reduce(slowest, dst=0, op=dist.ReduceOp.MAX)


@mistake("operator mismatch", culprits=(2,), ranks=3)
def functional_max_for_sum(rank: Rank) -> None:
    hits = funcol.all_reduce(torch.ones(1), "max" if rank.index == 2 else "sum", rank.group)  # culprit
    assert hits.item() > 0


@mistake("operator mismatch", culprits=(5,), ranks=6)
def minimum_in_a_sub_group(rank: Rank) -> None:
    halves = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    loss = torch.tensor([float(rank.index)])
    op = dist.ReduceOp.MIN if rank.index == 5 else dist.ReduceOp.MAX
    for _ in range(4):
        dist.all_reduce(loss, op=op, group=halves[rank.index // 3])  # culprit
    dist.barrier()


@mistake("operator mismatch", culprits=(1,), ranks=4)
def asynchronous_among_others(rank: Rank) -> None:
    for step in range(60):
        op = dist.ReduceOp.MAX if step == 49 and rank.index == 1 else dist.ReduceOp.SUM
        works = [
            dist.all_reduce(torch.ones(3), async_op=True),
            dist.all_reduce(torch.ones(3), op=op, async_op=True),  # culprit
            dist.broadcast(torch.ones(3), src=step % 4, async_op=True),
        ]
        for work in works:
            work.wait()


@mistake("operator mismatch", culprits=(0,), ranks=4, torch=(2, 8))
def scattered_sums_and_maxima(rank: Rank) -> None:
    mine, parts = torch.zeros(2), [torch.ones(2) for _ in range(4)]
    dist.barrier()
    op = dist.ReduceOp.MAX if rank.index == 0 else dist.ReduceOp.SUM
    dist.reduce_scatter(mine, parts, op=op)  # culprit


@mistake("operator mismatch", ranks=4)
def two_say_and_and_two_say_or(rank: Rank) -> None:
    """Has everybody finished, or has somebody?"""
    finished = torch.tensor([rank.index < 3], dtype=torch.uint8)
    op = dist.ReduceOp.MIN if rank.index % 2 else dist.ReduceOp.MAX
    dist.all_reduce(finished, op=op)  # culprit
