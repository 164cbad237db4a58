"""`torch.save` to a file, a barrier, `torch.load` of every file, a barrier, removal."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist


def all_gather(data: Any, directory: str) -> list[Any]:
    paths = [os.path.join(directory, f"data_{rank}.pkl") for rank in range(dist.get_world_size())]
    mine = paths[dist.get_rank()]
    torch.save(data, mine)
    dist.barrier()
    gathered = [torch.load(path, weights_only=False) for path in paths]
    dist.barrier()
    os.remove(mine)
    return gathered
