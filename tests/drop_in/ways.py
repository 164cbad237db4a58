"""Every gather under one signature, as its callers call it, and torch's own beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch.distributed as dist

from rankdrill import gathers

__all__ = ["TIMEOUT_S", "WAYS", "Way", "torchs"]

TIMEOUT_S = 30.0
Way: TypeAlias = Callable[[Any, Path], list[Any]]


def torchs(value: Any) -> list[Any]:
    """What torch's `all_gather_object` gives."""
    received = [None] * dist.get_world_size()
    dist.all_gather_object(received, value)
    return received


def _object(value: Any, here: Path) -> list[Any]:
    received = [None] * dist.get_world_size()
    gathers.all_gather_object(received, value, timeout=TIMEOUT_S)
    return received


def _to_one(value: Any, here: Path) -> list[Any]:
    received = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    gathers.gather_object(value, received, timeout=TIMEOUT_S)
    return received or []


def _configs(value: Any, here: Path) -> list[Any]:
    ranks = list(range(dist.get_world_size()))
    with gathers.get_configs_parallel(value, ranks, timeout=TIMEOUT_S) as configs:
        return configs


def _configs_by_files(value: Any, here: Path) -> list[Any]:
    ranks = list(range(dist.get_world_size()))
    with gathers.get_configs_parallel(value, ranks, workspace_path=here, timeout=TIMEOUT_S) as configs:
        return configs


def _workspace(value: Any, here: Path) -> list[Any]:
    with gathers.NFSWorkspace(here, timeout=TIMEOUT_S) as workspace:
        workspace.write_configs_and_weights("config", value)
        dist.barrier()
        found = [workspace.read_configs_and_weights_from_rank(rank)[1] for rank in range(dist.get_world_size())]
        dist.barrier()
        return found


def _checkpoint(value: Any, here: Path) -> list[Any]:
    path = here / "checkpoint.pt"
    gathers.gather_and_save_checkpoint(path, value, weights_only=False, timeout=TIMEOUT_S)
    loaded = gathers.load_checkpoint(path, weights_only=False, timeout=TIMEOUT_S).local_state
    return torchs(loaded)


WAYS: dict[str, Way] = {
    "all_gather": lambda value, here: gathers.all_gather(value, timeout=TIMEOUT_S),
    "all_gather, weights_only": lambda value, here: gathers.all_gather(value, weights_only=True, timeout=TIMEOUT_S),
    "all_gather_list": lambda value, here: gathers.all_gather_list(value, max_size=1 << 22, timeout=TIMEOUT_S),
    "all_gather_object": _object,
    "all_gather_shm": lambda value, here: gathers.all_gather_shm(value, timeout=TIMEOUT_S),
    "all_gather_via_filesys": lambda value, here: gathers.all_gather_via_filesys(value, here, timeout=TIMEOUT_S),
    "gather": lambda value, here: gathers.gather(value, timeout=TIMEOUT_S),
    "gather, network": lambda value, here: gathers.gather(value, "network", timeout=TIMEOUT_S),
    "gather_object": _to_one,
    "get_configs_parallel": _configs,
    "get_configs_parallel, workspace_path": _configs_by_files,
    "NFSWorkspace": _workspace,
    "gather_and_save_checkpoint": _checkpoint,
}
