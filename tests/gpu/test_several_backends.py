"""A group with gloo for main memory and NCCL for what lies on a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

pytestmark = pytest.mark.gpu

DEADLINE_S = 200.0
SOON_S = 100.0


def begin() -> tuple[int, torch.Tensor, torch.Tensor]:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    return dist.get_rank(), torch.ones(4), torch.ones(4, device="cuda")


def goes_right() -> list[float]:
    rank, here, there = begin()
    for _ in range(3):
        dist.all_reduce(here)
        dist.all_reduce(there)
    if rank == 0:
        dist.send(here, 1)
        dist.send(there, 1)
    else:
        dist.recv(here, 0)
        dist.recv(there, 0)
    names = [None, None]
    dist.all_gather_object(names, f"rank {rank}")
    dist.barrier()
    return [float(here[0]), float(there[0])]


def leaves_one_out() -> float:
    rank, here, there = begin()
    dist.all_reduce(here)
    dist.all_reduce(there)
    if rank == 0:
        dist.all_reduce(there)
    return float(there[0])


def leaves_out_one_of_gloo() -> float:
    rank, here, there = begin()
    dist.all_reduce(there)
    if rank == 0:
        dist.all_reduce(here)
    return float(there[0])


def brings_main_memory() -> float:
    rank, here, there = begin()
    dist.all_reduce(there)
    dist.all_reduce(here if rank == 1 else there)
    return float(there[0])


def test_calls_of_both() -> None:
    with World(2, init=False, device="cuda") as world:
        for _ in range(2):
            assert world.run(goes_right, deadline=DEADLINE_S).unwrap() == [[8.0, 8.0]] * 2


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (leaves_one_out, FindingKind.MISSING),
        (leaves_out_one_of_gloo, FindingKind.MISSING),
        (brings_main_memory, FindingKind.DEVICE),
    ],
)
def test_what_is_told(body: object, kind: FindingKind) -> None:
    with World(2, init=False, device="cuda") as world:
        outcome = world.run(body, deadline=DEADLINE_S)  # type: ignore[arg-type]
    (finding,) = outcome.findings
    assert finding.kind is kind
    assert f"in {body.__name__}" in str(finding)  # type: ignore[attr-defined]
    assert outcome.elapsed < SOON_S
