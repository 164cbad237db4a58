"""Request leak: work that is under way and that nobody ever waits for."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("request leak", culprits=(1,), ranks=3)
def one_rank_does_not_wait(rank: Rank) -> None:
    gradient = torch.ones(64)
    work = dist.all_reduce(gradient, async_op=True)  # culprit
    if rank.index != 1:
        work.wait()
    dist.barrier()


@mistake("request leak", culprits=(0,), ranks=2)
def sent_and_forgotten(rank: Rank) -> None:
    if rank.index == 0:
        dist.isend(torch.ones(4), dst=1)  # culprit
    else:
        dist.recv(torch.zeros(4), src=0)
    dist.barrier()


@mistake("request leak", culprits=(1,), ranks=2)
def received_and_never_looked_at(rank: Rank) -> None:
    buffer = torch.zeros(4)
    if rank.index == 0:
        dist.send(torch.ones(4), dst=1)
    else:
        dist.irecv(buffer, src=0)  # culprit
    dist.barrier()


@mistake("request leak", culprits=(0, 1, 2), ranks=3)
def all_but_the_last_bucket(rank: Rank) -> None:
    buckets = [torch.ones(8) for _ in range(5)]
    works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]  # culprit
    for work in works[:-1]:
        work.wait()
    dist.barrier()


@mistake("request leak", culprits=(0, 1), ranks=2)
def only_the_latest_is_kept(rank: Rank) -> None:
    latest = None
    for size in range(1, 20):
        latest = dist.all_reduce(torch.ones(size), async_op=True)  # culprit
    if latest is not None:
        latest.wait()
    dist.barrier()


@mistake("request leak", culprits=(2,), ranks=4)
def waits_for_the_first_of_a_batch(rank: Rank) -> None:
    left, right = (rank.index - 1) % 4, (rank.index + 1) % 4
    requests = dist.batch_isend_irecv(  # culprit
        [dist.P2POp(dist.isend, torch.ones(2), right), dist.P2POp(dist.irecv, torch.zeros(2), left)]  # culprit
    )
    for request in requests[:1] if rank.index == 2 else requests:
        request.wait()
    dist.barrier()


@mistake("request leak", culprits=(0, 1, 2), ranks=3)
def a_functional_result_that_nobody_uses(rank: Rank) -> None:
    for _ in range(3):
        funcol.all_reduce(torch.ones(16), "sum", rank.group)  # culprit
    dist.barrier()


@mistake("request leak", culprits=(4,), ranks=6)
def leaves_before_it_waits(rank: Rank) -> None:
    group = dist.new_group([0, 2, 4])
    pending = None
    if rank.index in (0, 2, 4):
        pending = dist.broadcast(torch.ones(8), src=0, group=group, async_op=True)  # culprit
    dist.barrier()
    if pending is None or rank.index == 4:
        return
    pending.wait()


@mistake("request leak", culprits=(1,), ranks=3)
def an_error_between_issue_and_wait(rank: Rank) -> None:
    for step in range(60):
        gradient = torch.ones(4)
        try:
            work = dist.all_reduce(gradient, async_op=True)  # culprit
            if step == 49 and rank.index == 1:
                raise OverflowError("loss scale")
            work.wait()
        except OverflowError:
            gradient = torch.zeros(4)
    dist.barrier()


@mistake("request leak", culprits=(0, 2), ranks=3)
def the_functional_result_instead_of_what_it_was_given(rank: Rank) -> None:
    """It is no `all_reduce` in place: its result is dropped, and the rank goes on with its own number."""
    pair = dist.new_group([0, 2])
    value = torch.full((4,), float(rank.index))
    if rank.index != 1:
        funcol.all_reduce(value, "sum", pair)  # culprit
    dist.barrier()
    assert value.sum().item() == 4 * rank.index


@mistake("request leak", culprits=(1, 2), ranks=3)
def losses_that_nobody_sees_sent(rank: Rank) -> None:
    """What the first worker has sent may have got there by chance."""
    if rank.index:
        for step in range(4):
            dist.isend(torch.tensor([float(step)]), 0)  # culprit
            time.sleep(0.005)
    else:
        loss = torch.zeros(1)
        for _ in range(4):
            for worker in (1, 2):
                dist.recv(loss, worker)
    dist.barrier()
