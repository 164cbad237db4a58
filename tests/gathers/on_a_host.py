"""Ranks of `test_two_hosts`, started by hand: each gathers in every way and prints what came of it as JSON."""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any

import torch.distributed as dist

from rankdrill.errors import GatherError
from rankdrill.gathers import (
    NFSWorkspace,
    all_gather_object,
    all_gather_shm,
    all_gather_via_filesys,
    gather,
    get_configs_parallel,
)
from rankdrill.gathers.agreement.registry import channel_of

LARGE = 200_000
CROSSING = 8_000_000
OWN = "/dev/shm/own"  # each host has its own
TIMEOUT_S = 30.0


def main(rank: int, size: int, address: str, common: str) -> None:
    wait = datetime.timedelta(seconds=60)
    store = dist.TCPStore(address, 29400, size, rank == 0, timeout=wait)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60))
    received: list[Any] = [None] * size
    all_gather_object(received, (rank, b"x" * LARGE), timeout=TIMEOUT_S)
    _, why = gather(b"y" * LARGE, explain=True, timeout=TIMEOUT_S)
    crossed = {path: over_the_cable(path) for path in ("auto", "network")}
    neighbours = dist.new_group([0, 1]) if rank < 2 else None
    dist.new_group([0, 1]) if rank >= 2 else None
    by_memory = [len(one) for one in all_gather_shm(b"z" * LARGE, group=neighbours)] if rank < 2 else []
    found = {
        "rank": rank,
        "hosts": channel_of().hosts,
        "objects": [(one, len(data)) for one, data in received],
        "why": why,
        "crossed": crossed,
        "neighbours": by_memory,
        "shm": refused(lambda: all_gather_shm(b"x" * LARGE, timeout=TIMEOUT_S)),
        "configs": refused(lambda: configs(rank)),
        "own": [
            refused(lambda: all_gather_via_filesys(rank, OWN, timeout=TIMEOUT_S)),
            refused(lambda: all_gather_via_filesys(rank, OWN, gather_to_rank_0_only=True, timeout=TIMEOUT_S)),
            refused(lambda: configs(rank, OWN)),
            refused(lambda: NFSWorkspace(OWN, meeting=True, timeout=TIMEOUT_S)),
            left(OWN),
        ],
        "common": [all_gather_via_filesys(rank, common, timeout=TIMEOUT_S), configs(rank, common), pairs(rank, common)],
        "after": after(rank),
    }
    print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def over_the_cable(path: str) -> float:
    """How often a payload of this size came to this host while every rank gathered it."""
    gather(b"warm" * LARGE, path, timeout=TIMEOUT_S)
    dist.barrier()
    before = received_bytes()
    values = gather(b"x" * CROSSING, path, timeout=TIMEOUT_S)
    assert [len(value) for value in values] == [CROSSING] * dist.get_world_size()
    dist.barrier()
    return (received_bytes() - before) / CROSSING


def received_bytes() -> int:
    with open("/proc/net/dev") as table:
        (line,) = (line for line in table if line.strip().startswith("cable:"))
    return int(line.partition(":")[2].split()[0])


def configs(rank: int, directory: str | None = None) -> list[Any]:
    with get_configs_parallel(rank, [0, 1, 2, 3], workspace_path=directory, timeout=TIMEOUT_S) as seen:
        return seen


def pairs(rank: int, directory: str) -> list[Any]:
    with NFSWorkspace(directory, meeting=True, timeout=TIMEOUT_S) as workspace:
        workspace.write_configs_and_weights(rank, None)
        seen = [workspace.read_configs_and_weights_from_rank(one)[0] for one in range(dist.get_world_size())]
        dist.barrier()
    return seen


def refused(call: Any) -> tuple[str, tuple[int, ...]] | str:
    try:
        call()
    except GatherError as error:
        return type(error).__name__, error.ranks
    return "was not refused"


def left(directory: str) -> list[str]:
    dist.barrier()
    return os.listdir(directory)


def after(rank: int) -> list[int]:
    return gather(rank, timeout=TIMEOUT_S)


def all_of(ranks: list[int]) -> int:
    """Run the ranks of one host, forked: they import torch once. Returns how many failed."""
    started = []
    for rank in ranks:
        pid = os.fork()
        if pid == 0:
            main(rank, int(sys.argv[2]), sys.argv[3], sys.argv[4])
            sys.exit(0)
        started.append(pid)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in started)


if __name__ == "__main__":
    sys.exit(all_of([int(rank) for rank in sys.argv[1].split(",")]))
