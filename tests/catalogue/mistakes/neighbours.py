"""Messages that one rank leaves out, where the number of its neighbour, or of its part, is 0 and taken for none."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


def _beside(rank: Rank) -> tuple[int | None, int | None]:
    """Who is to the left of a rank in a row, and who to the right."""
    left = rank.index - 1 if rank.index else None
    return left, rank.index + 1 if rank.index + 1 < rank.world_size else None


@mistake("unmatched message", culprits=(1,), also=("missing call",), ranks=4)
def no_halo_with_the_first(rank: Rank) -> None:
    left, right = _beside(rank)
    cells = torch.full((8,), float(rank.index))
    for _ in range(2):
        batch: list[dist.P2POp] = []
        if left:  # culprit
            batch.append(dist.P2POp(dist.isend, cells[1:2], left))
            batch.append(dist.P2POp(dist.irecv, cells[:1], left))
        if right is not None:
            batch.append(dist.P2POp(dist.isend, cells[-2:-1], right))
            batch.append(dist.P2POp(dist.irecv, cells[-1:], right))
        for work in dist.batch_isend_irecv(batch):  # culprit
            work.wait()
    dist.barrier()  # culprit


@mistake("unmatched message", culprits=(1,), also=("missing call",), ranks=4)
def takes_nothing_from_the_first_stage(rank: Rank) -> None:
    before, behind = _beside(rank)
    activation = torch.ones(6)
    for _ in range(3):
        if before:  # culprit
            dist.recv(activation, before)  # culprit
        if behind is not None:
            dist.send(activation * 2, behind)
    dist.barrier()  # culprit


@mistake("unmatched message", culprits=(0,), also=("missing call",), ranks=4)
def a_shard_of_number_nought_is_none(rank: Rank) -> None:
    leader = 3
    shard = torch.ones(5)
    if rank.index == leader:
        for other in range(leader):
            dist.send(shard * other, other)
    else:
        assigned = rank.index % leader
        if assigned:  # culprit
            dist.recv(shard, leader)  # culprit
    dist.barrier()  # culprit
