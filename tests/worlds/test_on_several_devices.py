"""Groups with a backend for main memory and another for a device: which calls go on after they have returned.

There is no GPU here: torch's ``meta`` device stands for one, with torch's ``fake`` backend, beside real gloo.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers ``fake``

from rankdrill import World
from rankdrill.boundary import torch_seam
from rankdrill.diagnosis import FindingKind
from rankdrill.diagnosis.calls.contracts import break_in
from rankdrill.explain.recording.posts import posts_of
from rankdrill.ledger import Record, State
from rankdrill.step import Kind, Step
from tests.torch_can import Can, needs

SOON_S = 15.0  # a bound that is far from any deadline here
DEADLINE_S = 60.0


def begin(place: str) -> tuple[int, torch.Tensor, torch.Tensor]:
    """The default group of both backends, one tensor in main memory and one on the device."""
    setattr(torch_seam, "DEVICE_BACKENDS", ("fake",))  # noqa: B010 (its own name for it)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(place, size)  # type: ignore[attr-defined]
    dist.init_process_group("cpu:gloo,meta:fake", store=store, rank=rank, world_size=size)
    return rank, torch.ones(4), torch.ones(4, device="meta")


def waits_for_the_device() -> None:
    while True:
        time.sleep(0.001)


def leaves_out_one_on_the_device(place: str) -> None:
    rank, here, there = begin(place)
    for _ in range(3):
        dist.all_reduce(here)
        dist.all_reduce(there)
    if rank != 1:
        dist.all_reduce(there)
        waits_for_the_device()


def leaves_out_one_that_nobody_waits_for(place: str) -> None:
    rank, here, there = begin(place)
    dist.all_reduce(here)
    if rank != 1:
        dist.all_reduce(there)


def brings_main_memory(place: str) -> None:
    rank, here, there = begin(place)
    dist.all_reduce(there)
    dist.all_reduce(here if rank == 2 else there)  # odd


def sends_from_main_memory(place: str) -> None:
    rank, here, there = begin(place)
    if rank == 0:
        dist.send(here, 1)
    elif rank == 1:
        dist.recv(there, 0)


def goes_right(place: str) -> float:
    """Also where a rank is at its end long before the others, and has made all calls."""
    rank, here, there = begin(place)
    for _ in range(3):
        dist.all_reduce(there)
        dist.all_reduce(here)
    dist.broadcast(there, 0)
    dist.all_gather([torch.empty(4, device="meta") for _ in range(dist.get_world_size())], there)
    if rank == 0:
        dist.send(here, 1)
        dist.send(there, 1)
    elif rank == 1:
        dist.recv(here, 0)
        dist.recv(there, 0)
    if rank != 2:
        time.sleep(0.3)
    return float(here[0])


@pytest.mark.parametrize("body", [leaves_out_one_on_the_device, leaves_out_one_that_nobody_waits_for])
def test_a_call_on_the_device_is_missed_as_it_is_where_all_are(body: Any, tmp_path: Any) -> None:
    needs(Can.STAND_ON_META)
    with World(3, init=False) as world:
        outcome = world.run(body, str(tmp_path / "store"), deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.MISSING
    assert finding.culprits == (1,)
    assert f"in {body.__name__}" in str(finding)
    assert outcome.elapsed < SOON_S


def test_tensors_on_different_devices_never_meet(tmp_path: Any) -> None:
    needs(Can.STAND_ON_META)
    with World(3, init=False) as world:
        (finding,) = world.run(brings_main_memory, str(tmp_path / "store"), deadline=DEADLINE_S).findings
        assert finding.kind is FindingKind.DEVICE
        assert finding.culprits == (2,)
        assert "with float32 in main memory" in str(finding)
        assert "with meta:float32" in str(finding)
        (finding,) = world.run(sends_from_main_memory, str(tmp_path / "other"), deadline=DEADLINE_S).findings
        assert finding.kind is FindingKind.DEVICE
        assert finding.ranks == (0, 1)


def test_calls_on_both_devices_are_right(tmp_path: Any) -> None:
    needs(Can.STAND_ON_META)
    with World(3, init=False) as world:
        values = world.run(goes_right, str(tmp_path / "store"), deadline=DEADLINE_S).unwrap()
    assert values == [27.0] * 3


def test_a_recorded_call_says_which_device_it_goes_to() -> None:
    texts = "cuda:float32[4]+int64[2] sum", "float32[4]+int64[2] sum", "cuda:float32[4]+int64[2] sum"
    records = {
        rank: Record(
            0,
            Step(Kind.COLLECTIVE, "all_reduce", "default", text, 16, 3, digest=len(text)),
            State.BEGUN,
            1,
            0,
            1,
            None,
            "",
        )
        for rank, text in enumerate(texts)
    }
    assert [record.step.device for record in records.values()] == ["cuda", "", "cuda"]
    finding = break_in(posts_of(records), (0, 1, 2), "default", 3)
    assert finding is not None
    assert finding.kind is FindingKind.DEVICE
    assert finding.culprits == (1,)
