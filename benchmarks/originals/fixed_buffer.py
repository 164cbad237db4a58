"""Every rank writes its pickle into its own slot of one buffer of zeros; a sum joins the slots."""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.distributed as dist

LENGTH_BYTES = 4


def new_buffer(max_size: int) -> torch.Tensor:
    """The buffer, which the public versions keep from call to call."""
    return torch.zeros(max_size * dist.get_world_size(), dtype=torch.uint8)


def all_gather_list(data: Any, buffer: torch.Tensor, max_size: int) -> list[Any]:
    encoded = pickle.dumps(data)
    if len(encoded) + LENGTH_BYTES > max_size:
        raise ValueError(f"{len(encoded)} bytes and their length exceed max_size={max_size}")
    begin = dist.get_rank() * max_size
    slot = [*len(encoded).to_bytes(LENGTH_BYTES, "big"), *encoded]
    buffer.zero_()
    buffer[begin : begin + len(slot)] = torch.tensor(slot, dtype=torch.uint8)
    dist.all_reduce(buffer)
    return [_read(buffer[rank * max_size : (rank + 1) * max_size]) for rank in range(dist.get_world_size())]


def _read(slot: torch.Tensor) -> Any:
    length = int.from_bytes(bytes(slot[:LENGTH_BYTES].tolist()), "big")
    return pickle.loads(bytes(slot[LENGTH_BYTES : LENGTH_BYTES + length].tolist()))
