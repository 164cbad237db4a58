"""CUDA payloads and the padded route, on ranks that share one GPU."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather, all_gather_object, gather
from rankdrill.gathers.encoding.wire import bytes_of
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.transfer.staging import Staging
from tests.gathers.attempts import TIMEOUT_S, Unloadable, all_alike, attempt, replaced

padded: Any = import_module("rankdrill.gathers.all_gather")  # the package has the function under that name

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("weights_only", [False, True])
def test_cuda_tensors_arrive_on_the_receivers_device(weights_only: bool) -> None:
    def body() -> Any:
        values: list[Any] = [None, None]
        mine = torch.full((5000,), float(dist.get_rank()), device="cuda")
        all_gather_object(values, {"view": mine[10:20], "none": None}, weights_only=weights_only, timeout=TIMEOUT_S)
        values[0]["view"].add_(1)
        return [(one["view"].device.type, one["view"].tolist()) for one in values], mine.sum().item()

    with rankdrill.World(2, device="cuda") as world:
        got = world.run(body).unwrap()
    assert all_alike([seen for seen, _ in got]) == [("cuda", [1.0] * 10), ("cuda", [1.0] * 10)]
    assert [own for _, own in got] == [0.0, 5000.0]


def test_the_padded_route() -> None:
    def body() -> Any:
        # gloo moves CUDA tensors through the same calls.
        with (
            replaced(torch_seam, "cuda_backend", lambda group: "nccl"),
            replaced(padded, "require_own_gpus", lambda call, slots: None),
        ):
            sizes = [3_000_000, 5, 70_000]
            values = all_gather(b"x" * sizes[dist.get_rank()], timeout=TIMEOUT_S)
            failed = attempt(all_gather, Unloadable() if dist.get_rank() == 1 else 1, timeout=TIMEOUT_S)
            return [len(value) for value in values], failed.kind, failed.ranks

    with rankdrill.World(3, device="cuda") as world:
        assert all_alike(world.run(body).unwrap()) == ([3_000_000, 5, 70_000], "DecodeError", (1,))


def test_ranks_on_one_gpu_are_told_of_set_device() -> None:
    def body() -> Any:
        torch.cuda.set_device(0)
        os.environ.pop("NCCL_HOSTID", None)  # by which NCCL lets ranks share it
        with replaced(torch_seam, "cuda_backend", lambda group: "nccl"):
            failed = [attempt(call, b"x" * 200_000, timeout=TIMEOUT_S) for call in (all_gather, gather_by_cuda)]
        return failed, all_gather(1, force_cpu=True, timeout=TIMEOUT_S)

    with rankdrill.World(2, device="cuda") as world:
        failed, after = all_alike(world.run(body).unwrap())
    assert [(one.kind, one.ranks) for one in failed] == [("ArgumentMismatch", (1,))] * 2
    assert "set_device" in failed[0].text
    assert after == [1, 1]


def gather_by_cuda(value: Any, **options: Any) -> Any:
    return gather(value, "cuda", **options)


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 1001, 5000])
def test_staging_through_pinned_memory(nbytes: int) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    staging = Staging(device, stage_bytes=1000)
    sent = torch.randint(256, (nbytes,), dtype=torch.uint8)
    there = torch.empty(nbytes, dtype=torch.uint8, device=device)
    staging.send((bytes_of(part) for part in torch.split(sent, 1000)), there)
    back = torch.empty(nbytes, dtype=torch.uint8)
    staging.receive(there, bytes_of(back))
    assert torch.equal(there.cpu(), sent)
    assert torch.equal(back, sent)


def test_an_nccl_world_of_one() -> None:
    def body() -> Any:
        mine = torch.arange(100_000, device="cuda")
        (back,), why = gather(mine, explain=True, timeout=TIMEOUT_S)
        (same,) = all_gather(mine, timeout=TIMEOUT_S)
        return back.device == mine.device, torch.equal(back, mine), torch.equal(same, mine), why

    with rankdrill.World(1, backend="nccl", device="cuda") as world:
        assert world.run(body).unwrap()[0][:3] == (True, True, True)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_no_context_on_another_gpu() -> None:
    def body() -> Any:
        all_gather(torch.ones(100_000, device="cuda"), timeout=TIMEOUT_S)
        gather(b"x" * 200_000, "cuda", timeout=TIMEOUT_S)
        # What torch holds on the other GPU: nothing, where it has never been the current one.
        return torch.cuda.memory_reserved(1 - dist.get_rank()), torch.cuda.current_device() == dist.get_rank()

    with rankdrill.World(2, backend="nccl", device="cuda") as world:
        assert world.run(body).unwrap() == [(0, True), (0, True)]
