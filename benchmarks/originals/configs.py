"""Each rank copies its config, tensors apart, into one segment; after a barrier the first rank copies all out."""

from __future__ import annotations

import io
import pickle
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.originals import segments

LENGTH_BYTES = 8
ALIGNED_TO = 64
Layout = list[tuple[int, tuple[int, ...], torch.dtype]]  # of each tensor: where it begins, its shape, its type


class _Split(pickle.Pickler):
    """Pickles everything but the tensors, which it keeps."""

    def __init__(self, to: io.BytesIO) -> None:
        super().__init__(to)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        self.tensors.append(value)
        return len(self.tensors) - 1


class _Join(pickle.Unpickler):
    """Puts copies of the tensors in `memory` back in their places."""

    def __init__(self, state: bytes, memory: memoryview, layout: Layout) -> None:
        super().__init__(io.BytesIO(state))
        self._memory = memory
        self._layout = layout

    def persistent_load(self, number: int) -> torch.Tensor:
        begin, shape, dtype = self._layout[number]
        count = torch.Size(shape).numel()
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=begin).reshape(shape).clone()


def gather_first(config: Any, prefix: str) -> list[Any]:
    mine = _write(config, f"{prefix}{dist.get_rank()}")
    dist.barrier()
    configs = []
    if dist.get_rank() == 0:  # its own is not copied
        configs = [config, *(_read(f"{prefix}{rank}") for rank in range(1, dist.get_world_size()))]
    dist.barrier()
    segments.remove(mine)
    return configs


def _write(config: Any, name: str) -> SharedMemory:
    state = io.BytesIO()
    split = _Split(state)
    split.dump(config)
    layout: Layout = []
    end = 0
    for tensor in split.tensors:
        layout.append((end, tuple(tensor.shape), tensor.dtype))
        end += -(-tensor.nbytes // ALIGNED_TO) * ALIGNED_TO
    head = pickle.dumps((state.getvalue(), layout))
    segment = segments.create(name, end + LENGTH_BYTES + len(head))
    memory = segments.memory_of(segment)
    for (begin, shape, dtype), tensor in zip(layout, split.tensors, strict=True):
        place = torch.frombuffer(memory, dtype=dtype, count=tensor.numel(), offset=begin)
        place.reshape(shape).copy_(tensor)
    memory[end : end + len(head)] = head
    memory[-LENGTH_BYTES:] = end.to_bytes(LENGTH_BYTES, "big")
    return segment


def _read(name: str) -> Any:
    segment = segments.attach(name)
    memory = segments.memory_of(segment)
    try:
        begin = int.from_bytes(memory[-LENGTH_BYTES:], "big")
        with memory[begin:] as rest:
            state, layout = pickle.loads(rest)
        return _Join(state, memory, layout).load()
    finally:
        segment.close()
