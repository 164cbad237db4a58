"""Each rank copies one tensor, as large as everybody's, into a segment; the first rank copies all out."""

from __future__ import annotations

from multiprocessing.shared_memory import SharedMemory

import torch
import torch.distributed as dist
from benchmarks.originals import segments


def gather_first(tensor: torch.Tensor, prefix: str) -> list[torch.Tensor]:
    mine = segments.create(f"{prefix}{dist.get_rank()}", tensor.nbytes)
    _view(mine, tensor).copy_(tensor)
    dist.barrier()
    tensors = []
    if dist.get_rank() == 0:  # its own is not copied
        tensors = [tensor, *(_read(f"{prefix}{rank}", tensor) for rank in range(1, dist.get_world_size()))]
    dist.barrier()
    segments.remove(mine)
    return tensors


def _view(segment: SharedMemory, like: torch.Tensor) -> torch.Tensor:
    return torch.frombuffer(segments.memory_of(segment), dtype=like.dtype, count=like.numel()).reshape(like.shape)


def _read(name: str, like: torch.Tensor) -> torch.Tensor:
    segment = segments.attach(name)
    try:
        return _view(segment, like).clone()
    finally:
        segment.close()
