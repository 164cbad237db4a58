"""Four ranks and one `all_reduce` on `torch.multiprocessing.spawn`, so many times; prints the seconds of each."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

RANKS = 4


def rank_main(rank: int, rendezvous: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    dist.all_reduce(torch.ones(1))
    dist.barrier()
    dist.destroy_process_group()


def once() -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        spawn(rank_main, (os.path.join(directory, "rendezvous"),), nprocs=RANKS)  # type: ignore[no-untyped-call]
        return time.monotonic() - began


if __name__ == "__main__":
    print(json.dumps([once() for _ in range(int(sys.argv[1]))]))
