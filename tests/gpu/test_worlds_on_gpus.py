"""Worlds with CUDA: an NCCL world of one, gloo ranks that share a GPU, and a template that never touches it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from rankdrill import Plan, World
from rankdrill.worlds import Status

pytestmark = pytest.mark.gpu


def total_on_gpu() -> tuple[float, str]:
    total = torch.ones(3, device="cuda")
    dist.all_reduce(total)
    return float(total[0]), str(total.device)


def test_an_nccl_world_of_one() -> None:
    with World(1, backend="nccl", device="cuda") as world:
        assert world.run(total_on_gpu).unwrap() == [(1.0, "cuda:0")]
        assert world.run(total_on_gpu).unwrap() == [(1.0, "cuda:0")], "and warm"


def test_gloo_ranks_share_a_gpu() -> None:
    with World(2, backend="gloo", device="cuda") as world:
        values = world.run(total_on_gpu).unwrap()
    assert [value for value, _ in values] == [2.0, 2.0]


def test_steps_of_nccl_are_in_the_ledger_and_faults_strike_them() -> None:
    with World(1, backend="nccl", device="cuda") as world:
        outcome = world.run(total_on_gpu, plan=Plan.parse("rank 0: exit(5) before collective.all_reduce"))
    assert outcome.ranks[0].status is Status.DIED
    assert outcome.ranks[0].by_plan


def test_a_cuda_context_in_the_controller_does_not_reach_the_ranks() -> None:
    torch.ones(1, device="cuda")
    with World(2, backend="gloo", device="cuda") as world:
        world.run(total_on_gpu).unwrap()


@pytest.mark.ranks(1, backend="nccl", device="cuda")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
def test_the_fixture_knows_its_device(rank) -> None:  # type: ignore[no-untyped-def]
    assert rank.device == torch.device("cuda", 0)
    assert torch.cuda.current_device() == 0
