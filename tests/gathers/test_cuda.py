"""CUDA payloads and the padded route, on ranks that share one GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather, all_gather_object, torch_seam
from tests.gathers.attempts import TIMEOUT_S, Unloadable, all_alike, attempt, replaced

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
        # NCCL refuses two ranks on one GPU; gloo moves CUDA tensors through the same calls.
        with replaced(torch_seam, "cuda_backend", lambda group: "nccl"):
            sizes = [3_000_000, 5, 70_000]
            values = all_gather(b"x" * sizes[dist.get_rank()], timeout=TIMEOUT_S)
            failed = attempt(all_gather, Unloadable() if dist.get_rank() == 1 else 1, timeout=TIMEOUT_S)
            return [len(value) for value in values], failed.kind, failed.ranks

    with rankdrill.World(3, device="cuda") as world:
        assert all_alike(world.run(body).unwrap()) == ([3_000_000, 5, 70_000], "DecodeError", (1,))
