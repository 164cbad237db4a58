"""One adapter per gather of rankdrill's own, and one per hand-written gather worth comparing with."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from rankdrill import gathers
from rankdrill.conformance.adapter import Adapter, Setting
from rankdrill.conformance.payloads import TENSORS
from rankdrill.conformance.workspace import NFS_WORKSPACE
from rankdrill.step import Kind

__all__ = ["FOREIGN", "OURS"]

_MEMORY = frozenset({Kind.COLLECTIVE, Kind.OBJECT, Kind.MEMORY, Kind.CLOCK})
_FILES = _MEMORY | {Kind.FILE}
_SHM = _MEMORY | {Kind.SHM}


def _all_gather(payload: Any, setting: Setting) -> Any:
    return gathers.all_gather(payload, force_cpu=True, timeout=setting.timeout)


def _all_gather_files(payload: Any, setting: Setting) -> Any:
    return gathers.all_gather(payload, force_filesys=True, filesys_save_dir=setting.directory, timeout=setting.timeout)


def _all_gather_via_filesys(payload: Any, setting: Setting) -> Any:
    return gathers.all_gather_via_filesys(payload, setting.directory, timeout=setting.timeout)


def _all_gather_list(payload: Any, setting: Setting) -> Any:
    return gathers.all_gather_list(payload, max_size=setting.room, timeout=setting.timeout)


def _all_gather_shm(payload: Any, setting: Setting) -> Any:
    return gathers.all_gather_shm(payload, timeout=setting.timeout)


def _all_gather_object(payload: Any, setting: Setting) -> Any:
    received: list[Any] = [None] * setting.size
    gathers.all_gather_object(received, payload, timeout=setting.timeout)
    return received


def _gather_object(payload: Any, setting: Setting) -> Any:
    # Not to rank 0, so that a root that is ignored shows.
    root = setting.size - 1
    received: list[Any] | None = [None] * setting.size if setting.rank == root else None
    gathers.gather_object(payload, received, dst=root, timeout=setting.timeout)
    return received


def _last_receives(rank: int, payloads: Sequence[Any]) -> Any:
    return list(payloads) if rank == len(payloads) - 1 else None


def _get_configs(payload: Any, setting: Setting, workspace: str | None) -> Any:
    ranks = list(range(setting.size))
    offered = gathers.get_configs_parallel(
        payload, ranks, dist.group.WORLD, workspace_path=workspace, timeout=setting.timeout
    )
    with offered as configs:
        return copy.deepcopy(configs)  # a segment's contents are gone with it


def _get_configs_shm(payload: Any, setting: Setting) -> Any:
    return _get_configs(payload, setting, None)


def _get_configs_files(payload: Any, setting: Setting) -> Any:
    return _get_configs(payload, setting, setting.directory)


def _get_tensors(payload: Any, setting: Setting) -> Any:
    with gathers.get_tensors_parallel(payload, list(range(setting.size)), timeout=setting.timeout) as tensors:
        return [tensor.clone() for tensor in tensors]


def _checkpoint(payload: Any, setting: Setting) -> Any:
    path = os.path.join(setting.directory, "last.pt")
    gathers.gather_and_save_checkpoint(path, payload, weights_only=False, timeout=setting.timeout)
    return gathers.load_checkpoint(path, weights_only=False, timeout=setting.timeout).local_state


def _each_its_own(rank: int, payloads: Sequence[Any]) -> Any:
    return payloads[rank]


def _first_receives(rank: int, payloads: Sequence[Any]) -> Any:
    return list(payloads) if rank == 0 else []


def _as_config(payload: Any) -> Any:
    return None if payload is None else {"payload": payload, "weight": torch.arange(3)}


def _torch_all_gather_object(payload: Any, setting: Setting) -> Any:
    received: list[Any] = [None] * setting.size
    dist.all_gather_object(received, payload)
    return received


def _torch_gather_object(payload: Any, setting: Setting) -> Any:
    root = setting.size - 1
    received: list[Any] | None = [None] * setting.size if setting.rank == root else None
    dist.gather_object(payload, received, dst=root)
    return received


OURS: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        Adapter("all_gather", _all_gather, kinds=_MEMORY),
        Adapter("all_gather/files", _all_gather_files, kinds=_FILES),
        Adapter("all_gather_via_filesys", _all_gather_via_filesys, kinds=_FILES),
        Adapter("all_gather_list", _all_gather_list, kinds=_MEMORY),
        Adapter("all_gather_object", _all_gather_object, kinds=_MEMORY),
        Adapter("all_gather_shm", _all_gather_shm, kinds=_SHM),
        Adapter("gather_object", _gather_object, _last_receives, kinds=_MEMORY),
        NFS_WORKSPACE,
        Adapter("gather_and_save_checkpoint", _checkpoint, _each_its_own, kinds=_FILES, keeps=("last.pt",)),
        Adapter("get_configs_parallel", _get_configs_shm, _first_receives, _as_config, kinds=_SHM),
        Adapter("get_configs_parallel/files", _get_configs_files, _first_receives, _as_config, kinds=_FILES),
        Adapter("get_tensors_parallel", _get_tensors, _first_receives, payloads=TENSORS, kinds=_SHM),
    )
}
"""The paths drilled by default, by name."""

FOREIGN: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        Adapter("torch.all_gather_object", _torch_all_gather_object, kinds=_MEMORY),
        Adapter("torch.gather_object", _torch_gather_object, _last_receives, kinds=_MEMORY),
    )
}
"""Gathers of others, drilled only when asked for by name; they fail, which is what the drill is for."""
