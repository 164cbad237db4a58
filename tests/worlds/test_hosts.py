"""Hosts that ranks take themselves to be on, where they are more than there are GPUs."""

from __future__ import annotations

import os

import pytest

from rankdrill.worlds import hosts
from rankdrill.worlds.hosts import Seat, ranks_per_host, seat
from rankdrill.worlds.processes.messages import RankSpec
from rankdrill.worlds.processes.rendezvous import launch_variables


@pytest.mark.parametrize(
    ("gpus", "n", "backend", "device", "per_host"),
    [
        (1, 4, "nccl", "cuda", 1),
        (2, 4, "nccl", "cuda", 2),
        (2, 3, "gloo", "cuda", 2),
        (8, 4, "nccl", "cuda", 4),
        (2, 4, "cpu:gloo,cuda:nccl", "cpu", 2),
        (2, 4, "gloo", "cpu", 4),
        (0, 4, "gloo", "cpu", 4),
    ],
)
def test_a_host_has_as_many_ranks_as_there_are_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: int, n: int, backend: str, device: str, per_host: int
) -> None:
    monkeypatch.setattr(hosts, "count_gpus", lambda: gpus)
    assert ranks_per_host(n, backend, device) == per_host


def test_seats_are_taken_in_order_and_the_last_host_may_have_free_ones() -> None:
    assert [seat(rank, 5, 2) for rank in range(5)] == [
        Seat(host=0, hosts=3, local_rank=0, local_world_size=2),
        Seat(host=0, hosts=3, local_rank=1, local_world_size=2),
        Seat(host=1, hosts=3, local_rank=0, local_world_size=2),
        Seat(host=1, hosts=3, local_rank=1, local_world_size=2),
        Seat(host=2, hosts=3, local_rank=0, local_world_size=1),
    ]


def test_ranks_of_one_gpu_are_told_apart_by_their_hosts() -> None:
    told = [launch_variables(_spec(rank, per_host=1)) for rank in range(3)]
    assert [one["LOCAL_RANK"] for one in told] == ["0"] * 3
    assert [one["LOCAL_WORLD_SIZE"] for one in told] == ["1"] * 3
    assert [one["GROUP_RANK"] for one in told] == ["0", "1", "2"]
    assert {one["GROUP_WORLD_SIZE"] for one in told} == {"3"}
    assert len({one["NCCL_HOSTID"] for one in told}) == 3
    assert {(one["NCCL_SOCKET_IFNAME"], one["NCCL_NET"]) for one in told} == {("lo", "Socket")}


def test_ranks_of_one_host_are_told_nothing_of_nccl() -> None:
    told = [launch_variables(_spec(rank, per_host=0)) for rank in range(3)]
    assert [one["LOCAL_RANK"] for one in told] == ["0", "1", "2"]
    assert {one["GROUP_WORLD_SIZE"] for one in told} == {"1"}
    assert not any(name.startswith("NCCL") for one in told for name in one.keys() - os.environ.keys())


def _spec(rank: int, *, per_host: int) -> RankSpec:
    return RankSpec(rank, 3, "nccl", "cuda", "/nowhere", 60.0, 1, "run", ranks_per_host=per_host)
