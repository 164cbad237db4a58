"""Mistakes in one turn of a loop alone, the first or the last, among calls that are right.

Those in the fiftieth are beside the others of their kind.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("missing call", culprits=(1,), ranks=3)
def leaves_out_the_last_average(rank: Rank) -> None:
    loss, steps = torch.ones(2), 40
    for step in range(steps):
        dist.broadcast(loss, src=0)
        if step == steps - 1 and rank.index == 1:  # culprit
            continue  # culprit
        dist.all_reduce(loss)  # culprit
    dist.barrier()  # culprit


@mistake("root mismatch", culprits=(3,), ranks=4)
def from_itself_in_the_first_turn(rank: Rank) -> None:
    weights = torch.ones(6)
    for step in range(30):
        dist.all_reduce(weights)
        dist.broadcast(weights, src=3 if step == 0 and rank.index == 3 else 0)  # culprit


@mistake("unmatched message", culprits=(2,), ranks=4)
def does_not_pass_on_in_the_first_turn(rank: Rank) -> None:
    block = torch.ones(3)
    for step in range(30):
        dist.all_reduce(block)
        if rank.index % 2:
            dist.recv(block, src=rank.index - 1)
        elif not (step == 0 and rank.index == 2):  # culprit
            dist.send(block, dst=rank.index + 1)  # culprit
        dist.barrier()  # culprit


@mistake("unmatched message", culprits=(1,), ranks=6)
def to_the_partner_of_another_in_the_last_turn(rank: Rank) -> None:
    share, steps = torch.ones(4), 40
    for step in range(steps):
        dist.all_reduce(share)
        partner = (rank.index + 3) % 6
        if step == steps - 1 and rank.index == 1:
            partner = 5  # culprit
        if rank.index < 3:
            dist.send(share, dst=partner)  # culprit
        else:
            dist.recv(share, src=partner)


@mistake("operator mismatch", culprits=(4,), ranks=6)
def the_largest_for_the_sum_in_the_first_turn(rank: Rank) -> None:
    half = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])][rank.index // 3]
    for step in range(30):
        op = dist.ReduceOp.MAX if step == 0 and rank.index == 4 else dist.ReduceOp.SUM
        dist.broadcast(torch.ones(2), src=0)
        dist.all_reduce(torch.ones(5), op=op, group=half)  # culprit


@mistake("input hazard", culprits=(2,), ranks=3)
def clipped_under_way_in_the_first_turn(rank: Rank) -> None:
    gradient = torch.ones(64)
    for step in range(30):
        work = dist.all_reduce(gradient, async_op=True)
        if step == 0 and rank.index == 2:
            gradient.clamp_(max=0.5)  # culprit
        work.wait()
        dist.barrier()


@mistake("request leak", culprits=(3,), ranks=4)
def does_not_wait_in_the_last_turn(rank: Rank) -> None:
    gradient, steps = torch.ones(8), 40
    for step in range(steps):
        dist.barrier()
        work = dist.all_reduce(gradient.clone(), async_op=True)  # culprit
        if not (step == steps - 1 and rank.index == 3):
            work.wait()
