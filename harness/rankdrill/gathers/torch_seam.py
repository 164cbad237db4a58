"""The only module of the gathers that touches private torch APIs.

`tests/gathers/test_torch_seam.py` fails when one of them changes.

What is used, and why:

- ``distributed_c10d._new_process_group_helper``: makes a group under a name of our choice. The public `new_group`
  names a group after a counter that differs between ranks as soon as one is in a subgroup (torch 2.13: the hashed name
  contains ``len(_world.pg_names)``), and then the ranks wait for one another under different names.
- ``distributed_c10d._world`` and ``_unregister_process_group``: the companion group is taken out of torch's tables
  again, so that it changes no later name and lives exactly as long as we hold it.
- ``distributed_c10d._get_default_store``: where a group written in Python holds no store of its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d as c
from torch.distributed import distributed_c10d as c10d

__all__ = ["AllgatherOptions", "BroadcastOptions", "cpu_backend", "cuda_backend", "make_group", "store_of"]

AllgatherOptions = c.AllgatherOptions
BroadcastOptions = c.BroadcastOptions


def make_group(
    name: str, store: Any, ranks: Sequence[int], rank: int, backend: str, timeout: datetime.timedelta
) -> Any:
    """A process group of `ranks` (global) called `name`, unknown to torch's tables; `rank` is ours within it."""
    group, _ = c10d._new_process_group_helper(
        len(ranks),
        rank,
        list(ranks),
        dist.Backend(backend),
        store,
        name,  # type: ignore[arg-type]
        timeout=timeout,
        group_desc="rankdrill gathers",
    )
    _forget(group, name)
    return group


def store_of(group: Any) -> Any:
    """The store the members of `group` share."""
    try:
        return group.get_group_store()
    except (AttributeError, RuntimeError):
        return c.PrefixStore(f"rankdrill/{group.group_name}", c10d._get_default_store())


def cpu_backend(group: Any) -> str:
    """The backend `group` uses for CPU tensors; gloo where it has none."""
    return _backends(group).get("cpu", "gloo")


def cuda_backend(group: Any) -> str:
    """The backend `group` uses for CUDA tensors, or an empty string."""
    return _backends(group).get("cuda", "")


def _backends(group: Any) -> dict[str, str]:
    config = str(dist.get_backend_config(group))
    pairs = (part.partition(":") for part in config.split(","))
    return {device: backend for device, colon, backend in pairs if colon}


def _forget(group: Any, name: str) -> None:
    world = c10d._world
    for table in (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config, world.pg_to_tag):
        table.pop(group, None)
    for tag in [tag for tag, groups in world.tags_to_pg.items() if any(one is group for one in groups)]:
        world.tags_to_pg[tag] = [one for one in world.tags_to_pg[tag] if one is not group]
        if not world.tags_to_pg[tag]:
            del world.tags_to_pg[tag]
    c._unregister_process_group(name)  # type: ignore[arg-type]
