"""Work under way that is waited for in ways one may overlook, and buffers that are touched at the right time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, correct


@correct(ranks=3)
def waited_for_in_another_order(rank: Rank) -> None:
    buffers = [torch.ones(size) for size in (1, 5, 3)]
    works = [dist.all_reduce(buffer, async_op=True) for buffer in buffers]
    for work in reversed(works) if rank.index == 1 else works:
        work.wait()
    assert all(buffer[0].item() == 3 for buffer in buffers)


@correct(ranks=2)
def waited_for_by_its_future(rank: Rank) -> None:
    gradient = torch.ones(8)
    future = dist.all_reduce(gradient, async_op=True).get_future()
    future.wait()
    assert gradient.tolist() == [2.0] * 8


@correct(ranks=3)
def goes_on_in_a_callback(rank: Rank) -> None:
    gradient = torch.ones(4)
    future = dist.all_reduce(gradient, async_op=True).get_future()
    mean = future.then(lambda done: gradient / 3)
    assert torch.equal(mean.wait(), torch.ones(4))


@correct(ranks=3)
def waited_for_in_a_thread(rank: Rank) -> None:
    gradient = torch.ones(4)
    work = dist.all_reduce(gradient, async_op=True)
    waiter = threading.Thread(target=work.wait)
    waiter.start()
    total = sum(number * number for number in range(1000))
    waiter.join()
    assert total
    assert gradient[0].item() == 3


@correct(ranks=2)
def polled_until_it_is_completed(rank: Rank) -> None:
    value = torch.ones(2)
    if rank.index == 1:
        time.sleep(0.2)
    work = dist.all_reduce(value, async_op=True)
    while not work.is_completed():
        time.sleep(0.002)
    assert value[0].item() == 2


@correct(ranks=4)
def touched_after_the_wait(rank: Rank) -> None:
    bucket = torch.ones(16)
    for _ in range(30):
        work = dist.all_reduce(bucket, async_op=True)
        scratch = torch.ones(16) * 2
        work.wait()
        bucket.copy_(scratch / 4)


@correct(ranks=2)
def read_while_it_is_only_read(rank: Rank) -> None:
    """What is sent may be read by others too."""
    block = torch.arange(6.0)
    if rank.index == 0:
        work = dist.isend(block, dst=1)
        assert block.sum().item() == 15
        work.wait()
        block.zero_()
    else:
        dist.recv(block, src=0)
        assert block.sum().item() == 15


@correct(ranks=2)
def two_buffers_in_turn(rank: Rank) -> None:
    buffers = [torch.zeros(4), torch.zeros(4)]
    pending: list[Any] = []
    for step in range(10):
        if len(pending) == 2:
            pending.pop(0).wait()
        buffer = buffers[step % 2]
        if rank.index == 0:
            buffer.fill_(step)
        pending.append(dist.broadcast(buffer, src=0, async_op=True))
    for work in pending:
        work.wait()
    assert [int(buffer[0]) for buffer in buffers] == [8, 9]


@correct(ranks=3)
def halves_of_one_tensor(rank: Rank) -> None:
    flat = torch.ones(10)
    works = [dist.all_reduce(half, async_op=True) for half in (flat[:5], flat[5:])]
    for work in works:
        work.wait()
    assert flat.tolist() == [3.0] * 10


@correct(ranks=2)
def another_tensor_of_that_name(rank: Rank) -> None:
    """The name is bound anew while the old tensor is under way; nobody writes into that."""
    value = torch.ones(8)
    kept = value
    work = dist.all_reduce(value, async_op=True)
    value = torch.zeros(8)
    value += 1
    work.wait()
    assert (kept[0].item(), value[0].item()) == (2, 1)


@correct(ranks=3)
def issued_on_one_rank_waited_for_on_another_line(rank: Rank) -> None:
    value = torch.ones(2)
    if rank.index == 0:
        dist.broadcast(value, src=0)
    else:
        work = dist.broadcast(value, src=0, async_op=True)
        work.wait()


@correct(ranks=3)
def functional_and_waited_for(rank: Rank) -> None:
    parts = [funcol.all_reduce(torch.ones(size), "sum", rank.group) for size in (1, 2, 3)]
    assert torch.cat([funcol.wait_tensor(part) for part in parts]).sum().item() == 18


@correct(ranks=2)
def in_a_pool_with_a_group_of_its_own(rank: Rank) -> None:
    """Two threads of a rank issue at the same time, each on its own group."""
    metrics = dist.new_group([0, 1])
    with ThreadPoolExecutor(1) as pool:
        shown = pool.submit(dist.all_reduce, torch.ones(1), group=metrics)
        for _ in range(20):
            dist.all_reduce(torch.ones(4))
        shown.result()
    dist.destroy_process_group(metrics)


@correct(ranks=2)
def one_thread_that_issues_for_all(rank: Rank) -> None:
    with ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            pool.submit(dist.all_reduce, torch.ones(2)).result()
    dist.barrier()


@correct(ranks=4)
def waited_for_long_after(rank: Rank) -> None:
    early = dist.all_reduce(torch.ones(2), async_op=True)
    for step in range(50):
        dist.broadcast(torch.ones(1), src=step % 4)
    early.wait()


@correct(ranks=2)
def waited_for_twice(rank: Rank) -> None:
    value = torch.ones(3)
    work = dist.all_reduce(value, async_op=True)
    work.wait()
    work.wait()
    assert value.sum().item() == 6


@correct(ranks=3)
def a_functional_result_that_one_rank_uses(rank: Rank) -> None:
    for step in range(5):
        ready = funcol.all_reduce(torch.ones(1), "sum", rank.group)
        total = funcol.all_reduce(torch.full((1,), float(step)), "sum", rank.group)
        if rank.index == 0:
            assert total.item() == 3 * step
        assert ready.item() == 3


@correct(ranks=2)
def a_view_of_a_functional_result(rank: Rank) -> None:
    total = funcol.all_reduce(torch.ones(2, 3), "sum", rank.group).view(-1)
    assert total.tolist() == [2.0] * 6
