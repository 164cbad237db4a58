"""One rank of `test_two_hosts`, started by hand: gathers in every way and prints what came of it as JSON."""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

import torch.distributed as dist

from rankdrill.errors import GatherError
from rankdrill.gathers import all_gather_object, all_gather_shm, gather, get_configs_parallel
from rankdrill.gathers.channel import channel_of

LARGE = 200_000
CROSSING = 8_000_000
TIMEOUT_S = 30.0


def main(rank: int, size: int, address: str) -> None:
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


def configs(rank: int) -> list[Any]:
    with get_configs_parallel(rank, [0, 1, 2, 3], timeout=TIMEOUT_S) as seen:
        return seen


def refused(call: Any) -> tuple[str, tuple[int, ...]] | str:
    try:
        call()
    except GatherError as error:
        return type(error).__name__, error.ranks
    return "was not refused"


def after(rank: int) -> list[int]:
    return gather(rank, timeout=TIMEOUT_S)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
