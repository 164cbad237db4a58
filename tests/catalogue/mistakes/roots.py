"""Root mismatch: ranks that take different ranks for the one that sends, or that receives."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("root mismatch", ranks=3)
def everybody_its_own_root(rank: Rank) -> None:
    dist.broadcast(torch.ones(4), src=rank.index)  # culprit
    dist.barrier()


@mistake("root mismatch", culprits=(2,), ranks=4)
def reduced_to_another(rank: Rank) -> None:
    dst = rank.index if rank.index == 2 else 0
    dist.reduce(torch.ones(3), dst=dst)  # culprit


@mistake("root mismatch", culprits=(1,), ranks=3)
def gathered_at_another(rank: Rank) -> None:
    parts = [torch.zeros(2) for _ in range(3)]
    if rank.index == 1:
        dist.gather(torch.ones(2), parts, dst=1)  # culprit
    else:
        dist.gather(torch.ones(2), parts if rank.index == 0 else None, dst=0)
    dist.barrier()


@mistake("root mismatch", culprits=(3,), ranks=4)
def scattered_by_another(rank: Rank) -> None:
    share, all_shares = torch.zeros(2), [torch.ones(2) for _ in range(4)]
    for step in range(10):
        src = 3 if step == 9 and rank.index == 3 else 0
        dist.scatter(share, all_shares if rank.index == src else None, src=src)  # culprit


@mistake("root mismatch", culprits=(3,), ranks=4)
def settings_of_another(rank: Rank) -> None:
    settings: list[Any] = [{"rate": 0.1 * rank.index}]
    leader = 1 if rank.index == 3 else 0
    dist.broadcast_object_list(settings, src=leader)  # culprit


@mistake("root mismatch", culprits=(4,), ranks=6)
def a_rank_of_the_group_for_a_rank_of_the_world(rank: Rank) -> None:
    members = [2, 3, 4]
    group = dist.new_group(members)
    tensor = torch.ones(5)
    if rank.index == 4:
        dist.broadcast(tensor, src=members[1], group=group)  # culprit
    elif rank.index in members:
        dist.broadcast(tensor, src=members[0], group=group)
    dist.barrier()


@mistake("root mismatch", ranks=2)
def both_collect_the_results(rank: Rank) -> None:
    results: list[Any] = [None, None]
    dist.gather_object({"score": rank.index}, results, dst=rank.index)  # culprit
    dist.barrier()


@mistake("root mismatch", culprits=(1,), ranks=4)
def the_best_by_its_own_count(rank: Rank) -> None:
    """Each rank works out by itself whose weights are best, and one breaks a tie the other way."""
    weights = torch.ones(6)
    for step in range(60):
        scores = [1.0, 3.0, 3.0, 2.0] if step >= 49 else [4.0, 3.0, 3.0, 2.0]
        order = reversed(range(4)) if rank.index == 1 else range(4)
        best = max(order, key=scores.__getitem__)
        dist.broadcast(weights, src=best)  # culprit
        dist.all_reduce(weights)


@mistake("root mismatch", culprits=(0,), ranks=3)
def functional_broadcast_of_another(rank: Rank) -> None:
    mine = torch.full((3,), float(rank.index))
    sent = funcol.broadcast(mine, 0 if rank.index == 0 else 2, rank.group)  # culprit
    assert sent.sum().item() >= 0


@mistake("root mismatch", culprits=(0,), ranks=3)
def asynchronous_from_another(rank: Rank) -> None:
    buffers = [torch.ones(4) for _ in range(3)]
    sources = [0, 2, 2] if rank.index == 0 else [0, 1, 2]
    works = []
    for buffer, src in zip(buffers, sources, strict=True):
        works.append(dist.broadcast(buffer, src, async_op=True))  # culprit
    for work in works:
        work.wait()


@mistake("root mismatch", culprits=(2, 3), ranks=4)
def the_first_of_the_world_for_the_first_of_its_half(rank: Rank) -> None:
    """Torch refuses it on the ranks of the other half, and the first half does well."""
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    settings = [{"lr": 0.1}] if rank.index % 2 == 0 else [None]
    dist.broadcast_object_list(settings, src=0, group=halves[rank.index // 2])  # culprit


@mistake("root mismatch", culprits=(3,), ranks=4)
def a_leader_of_its_own_in_one_node(rank: Rank) -> None:
    """By the same line the other node has its first rank for a leader."""
    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    leader = {0: 0, 1: 0, 2: 2, 3: 3}[rank.index]
    dist.broadcast(torch.ones(3), leader, group=nodes[rank.index // 2])  # culprit
    dist.barrier()
