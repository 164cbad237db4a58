"""Input hazard: a buffer that is touched while a collective or a message still works on it."""

from __future__ import annotations

import queue
import threading
import time

import numpy as np
import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("input hazard", culprits=(1,), ranks=3)
def zeroed_before_it_is_reduced(rank: Rank) -> None:
    gradient = torch.ones(256)
    work = dist.all_reduce(gradient, async_op=True)
    if rank.index == 1:
        gradient.zero_()  # culprit
    work.wait()


@mistake("input hazard", culprits=(1,), ranks=2)
def read_before_it_is_received(rank: Rank) -> None:
    answer = torch.zeros(4)
    if rank.index == 0:
        dist.send(torch.ones(4), dst=1)
    else:
        request = dist.irecv(answer, src=0)
        total = answer.sum()  # culprit
        request.wait()
        assert total >= 0


@mistake("input hazard", culprits=(2,), ranks=4)
def stepped_while_weights_are_sent(rank: Rank) -> None:
    model = torch.nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4)).sum().backward()
    work = dist.broadcast(model.weight.data, src=2, async_op=True)
    if rank.index == 2:
        optimizer.step()  # culprit
    work.wait()


@mistake("input hazard", culprits=(0,), ranks=3)
def added_to_a_bucket_under_way(rank: Rank) -> None:
    bucket = torch.zeros(32)
    for step in range(60):
        work = dist.all_reduce(bucket, async_op=True)
        if step == 49 and rank.index == 0:
            bucket[:4] += 1  # culprit
        work.wait()


@mistake("input hazard", culprits=(0,), ranks=2)
def one_buffer_for_two_messages(rank: Rank) -> None:
    if rank.index == 0:
        buffer = torch.zeros(8)
        requests = []
        for number in range(3):
            buffer.fill_(number)  # culprit
            requests.append(dist.isend(buffer, dst=1))
        for request in requests:
            request.wait()
    else:
        for _ in range(3):
            dist.recv(torch.zeros(8), src=0)


@mistake("input hazard", culprits=(0, 1, 2), ranks=3)
def shown_before_all_are_there(rank: Rank) -> None:
    parts = [torch.zeros(2) for _ in range(3)]
    work = dist.all_gather(parts, torch.full((2,), float(rank.index)), async_op=True)
    print([part.tolist() for part in parts])  # culprit
    work.wait()


@mistake("input hazard", culprits=(1,), ranks=2)
def written_through_numpy(rank: Rank) -> None:
    """The array and the tensor are one memory, and torch is not told."""
    pixels = np.ones(16, dtype=np.float32)
    work = dist.all_reduce(torch.from_numpy(pixels), async_op=True)
    if rank.index == 1:
        pixels[:] = 0  # culprit
    work.wait()


@mistake("input hazard", culprits=(1,), ranks=3)
def two_receives_into_one_buffer(rank: Rank) -> None:
    if rank.index == 1:
        buffer = torch.zeros(4)
        requests = [dist.irecv(buffer, src=0), dist.irecv(buffer, src=2)]  # culprit
        for request in requests:
            request.wait()
    else:
        dist.send(torch.full((4,), float(rank.index)), dst=1)


@mistake("input hazard", culprits=(0, 1), ranks=2)
def views_that_overlap(rank: Rank) -> None:
    flat = torch.ones(12)
    works = [dist.all_reduce(view, async_op=True) for view in (flat[:8], flat[4:])]  # culprit
    for work in works:
        work.wait()


@mistake("input hazard", culprits=(3,), ranks=4)
def scaled_in_the_wrong_place(rank: Rank) -> None:
    losses = [torch.ones(1) for _ in range(20)]
    works = []
    for loss in losses:
        works.append(dist.reduce(loss, dst=0, async_op=True))
        if rank.index == 3 and len(works) == len(losses):
            loss.mul_(0.25)  # culprit
    for work in works:
        work.wait()


@mistake("input hazard", culprits=(0,), ranks=2)
def a_thread_fills_what_is_on_its_way(rank: Rank) -> None:
    """The one buffer is filled with the next batch while this one is reduced."""
    batch, wanted, there = torch.zeros(1 << 16), queue.Queue[int](), queue.Queue[int]()

    def load() -> None:
        while (number := wanted.get()) >= 0:
            batch.fill_(float(number))  # culprit
            there.put(number)

    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    wanted.put(1)
    for number in (2, 3, -1):
        there.get()
        work = dist.all_reduce(batch if rank.index == 0 else batch.clone(), async_op=True)  # culprit
        wanted.put(number)
        time.sleep(0.05)
        assert work is not None
        work.wait()
    loader.join()
    dist.barrier()
