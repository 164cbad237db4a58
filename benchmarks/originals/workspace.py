"""Each rank saves its config and weights as one file; after a barrier the first rank loads them all."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist


def gather_first(config: Any, weights: Any, directory: str) -> list[tuple[Any, Any]]:
    write(config, weights, directory)
    dist.barrier()
    if dist.get_rank() != 0:
        return []
    return [read(rank, directory) for rank in range(dist.get_world_size())]


def write(config: Any, weights: Any, directory: str) -> None:
    torch.save({"config": config, "weights": weights}, _path(dist.get_rank(), directory))


def read(rank: int, directory: str) -> tuple[Any, Any]:
    state = torch.load(_path(rank, directory), weights_only=False)
    return state["config"], state["weights"]


def _path(rank: int, directory: str) -> str:
    return os.path.join(directory, f"rank_{rank}_state.pth")
