"""One segment per rank with a pickle in it; after a barrier everybody reads every segment."""

from __future__ import annotations

import pickle
from typing import Any

import torch.distributed as dist
from benchmarks.originals import segments


def all_gather(data: Any, prefix: str) -> list[Any]:
    encoded = pickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL)
    mine = segments.create(f"{prefix}{dist.get_rank()}", len(encoded))
    segments.memory_of(mine)[: len(encoded)] = encoded
    dist.barrier()
    gathered = [_read(f"{prefix}{rank}") for rank in range(dist.get_world_size())]
    dist.barrier()
    segments.remove(mine)
    return gathered


def _read(name: str) -> Any:
    segment = segments.attach(name)
    try:
        return pickle.loads(segments.memory_of(segment))
    finally:
        segment.close()
