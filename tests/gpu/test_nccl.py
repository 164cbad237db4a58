"""NCCL between ranks that share a GPU: real calls, and what is told of mistakes that the host does not see."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankdrill import Outcome, Plan, World
from rankdrill.diagnosis import FindingKind
from rankdrill.gathers import all_gather, all_gather_object, gather
from rankdrill.worlds import Status

pytestmark = pytest.mark.gpu

DEADLINE_S = 200.0
SOON_S = 100.0  # for what is certain long before that, worlds and communicators made anew included


@pytest.fixture(scope="module", params=[2, 3])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param, backend="nccl", device="cuda") as made:
        yield made


def run(world: World, body: Callable[..., Any]) -> Outcome:
    outcome = world.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < SOON_S
    return outcome


def ones() -> torch.Tensor:
    return torch.ones(4, device="cuda")


def every_collective() -> list[list[float]]:
    size, rank = dist.get_world_size(), dist.get_rank()
    total, theirs, mine = ones(), ones() * rank, torch.empty(4, device="cuda")
    dist.all_reduce(total)
    dist.broadcast(theirs, size - 1)
    gathered = torch.empty(4 * size, device="cuda")
    dist.all_gather_into_tensor(gathered, ones() * rank)
    dist.reduce_scatter_tensor(mine, torch.arange(4.0 * size, device="cuda"))
    swapped = torch.empty(size, device="cuda")
    dist.all_to_all_single(swapped, torch.full((size,), float(rank), device="cuda"))
    ring = [dist.P2POp(dist.isend, ones() * rank, (rank + 1) % size), dist.P2POp(dist.irecv, total, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    dist.barrier()
    return [each.tolist() for each in (total[:1], theirs[:1], gathered[::4], mine[:1], swapped)]


def test_calls_of_ranks_that_share_a_gpu(world: World) -> None:
    n = world.n
    for _ in range(2):  # fresh, and warm
        for rank, found in enumerate(run(world, every_collective).unwrap()):
            ranks = [float(each) for each in range(n)]
            assert found == [[(rank - 1) % n], [n - 1], ranks, [n * 4.0 * rank], ranks]


def test_they_are_told_that_they_are_on_hosts_with_all_the_gpus(world: World) -> None:
    gpus = torch.cuda.device_count()
    names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NCCL_SOCKET_IFNAME")
    shared = world.n > gpus
    for rank, found in enumerate(run(world, lambda: [os.environ.get(name) for name in names]).unwrap()):
        host, local = divmod(rank, gpus) if shared else (0, rank)
        here = min(gpus, world.n - host * gpus) if shared else world.n
        assert found == [str(local), str(here), str(host), "lo" if shared else os.environ.get("NCCL_SOCKET_IFNAME")]


def test_gathers_of_ranks_that_share_a_gpu(world: World) -> None:
    def body() -> Any:
        rank, values = dist.get_rank(), [None] * dist.get_world_size()
        all_gather_object(values, {"rank": rank})
        sizes = [len(each) for each in all_gather(b"x" * 200_000 * (1 + rank))]
        return values, sizes, len(gather(b"y" * 200_000, "cuda") or ())

    ranks = range(world.n)
    expected = [{"rank": rank} for rank in ranks], [200_000 * (1 + rank) for rank in ranks], world.n
    assert run(world, body).unwrap() == [expected] * world.n


def leaves_one_out() -> float:
    total = ones()
    dist.all_reduce(total)
    if dist.get_rank() != 1:
        dist.all_reduce(total)
    return float(total[0])


def leaves_one_out_and_does_not_look() -> None:
    total = ones()
    dist.all_reduce(total)
    torch.cuda.synchronize()
    if dist.get_rank() != 1:
        dist.all_reduce(total)


@pytest.mark.parametrize("body", [leaves_one_out, leaves_one_out_and_does_not_look])
def test_a_call_that_is_left_out(world: World, body: Callable[[], Any]) -> None:
    (finding,) = run(world, body).findings
    assert finding.kind is FindingKind.MISSING
    assert finding.culprits == ((1,) if world.n > 2 else ())
    assert f"in {body.__name__}" in str(finding)


def test_who_raised_is_the_culprit(world: World) -> None:
    def body() -> float:
        total = ones()
        dist.all_reduce(total)
        if dist.get_rank() == 1:
            raise ValueError("a bad batch")
        dist.all_reduce(total)
        return float(total[0])

    outcome = run(world, body)
    assert outcome.culprits == (1,)
    assert 0 in outcome.victims


def test_a_message_that_nobody_sends(world: World) -> None:
    def body() -> float:
        total = ones()
        if dist.get_rank() == 0:
            dist.recv(total, 1)
        return float(total[0])

    (finding,) = run(world, body).findings
    assert finding.kind is FindingKind.UNMATCHED


def exchanges_more_than_nccl_buffers() -> list[float]:
    size, rank = dist.get_world_size(), dist.get_rank()
    sent, found = torch.full((1 << 24,), float(rank), device="cuda"), torch.empty(1 << 24, device="cuda")  # 64 MiB
    ring = [dist.P2POp(dist.isend, sent, (rank + 1) % size), dist.P2POp(dist.irecv, found, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    return [float(found[0]), float(found[-1])]


def test_messages_of_a_batch_go_at_once(world: World) -> None:
    values = run(world, exchanges_more_than_nccl_buffers).unwrap()
    assert values == [[(rank - 1.0) % world.n] * 2 for rank in range(world.n)]


def test_backward_passes_are_told_though_the_engine_calls_in_a_thread_of_its_own(world: World) -> None:
    def body() -> float:
        device = torch.cuda.current_device()
        model = DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[device])
        loss = torch.zeros(1)
        for _ in range(2 if dist.get_rank() == 1 else 3):
            loss = model(torch.ones(2, 4, device="cuda")).sum()
            torch.autograd.backward(loss)
        torch.cuda.synchronize()
        return float(loss)

    (finding,) = run(world, body).findings
    assert finding.kind is FindingKind.MISSING
    assert "DDP bucket 0's all_reduce" in str(finding), finding
    assert "backward pass 3" in str(finding), finding
    assert "test_nccl.py:" in str(finding), finding


def test_memory_that_is_used_before_the_call_on_it_was_waited_for(world: World) -> None:
    def body(early: bool) -> float:
        total = ones()
        work = dist.all_reduce(total, async_op=True)
        assert work is not None
        if early:
            total.add_(1)
        work.wait()
        return float(total.add_(1)[0])

    assert run(world, lambda: body(early=False)).unwrap() == [world.n + 1.0] * world.n
    (finding,) = run(world, lambda: body(early=True)).findings
    assert finding.kind is FindingKind.INPUT_HAZARD


def test_channels_last_on_one_rank_is_moved_as_it_lies(world: World) -> None:
    """NCCL refuses other strides, and takes these."""

    def body() -> float:
        gradient = torch.arange(96.0, device="cuda").reshape(2, 3, 4, 4)
        if dist.get_rank() == 1:
            gradient = gradient.to(memory_format=torch.channels_last)
        dist.all_reduce(gradient)
        return float(gradient[1, 2, 3, 3])

    (finding,) = run(world, body).findings
    assert finding.kind is FindingKind.LAYOUT
    assert finding.culprits == ((1,) if world.n > 2 else ())


def test_a_fault_at_a_call_of_nccl(world: World) -> None:
    outcome = world.run(leaves_one_out, plan=Plan.parse("rank 1: exit(5) before collective.all_reduce #1"), deadline=20)
    assert outcome.ranks[1].status is Status.DIED
    assert outcome.ranks[1].by_plan
