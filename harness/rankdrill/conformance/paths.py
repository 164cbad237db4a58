"""One adapter per gather of rankdrill's own, and one per hand-written gather worth comparing with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance.adapter import Adapter, Setting
from rankdrill.conformance.payloads import TENSOR_PAYLOADS
from rankdrill.conformance.ways import WAYS, At, Way
from rankdrill.conformance.workspace import NFS_WORKSPACE
from rankdrill.step import Kind

__all__ = ["FOREIGN", "OURS"]

_MEMORY = frozenset({Kind.COLLECTIVE, Kind.OBJECT, Kind.MEMORY, Kind.CLOCK})
_FILES = _MEMORY | {Kind.FILE}
_SHM = _MEMORY | {Kind.SHM}


def _as_config(payload: Any) -> Any:
    return None if payload is None else {"payload": payload, "weight": torch.arange(3)}


def _ours(way: Way, **more: Any) -> Adapter:
    """The adapter of a way of rankdrill's own."""

    def call(payload: Any, setting: Setting) -> Any:
        return way.call(
            payload, At(setting.group or dist.group.WORLD, setting.directory, setting.timeout, room=setting.room)
        )

    def receives(rank: int, payloads: Sequence[Any]) -> Any:
        return way.given_to(rank, payloads)

    return Adapter(way.name, call, receives, **more)


def _last_receives(rank: int, payloads: Sequence[Any]) -> Any:
    return list(payloads) if rank == len(payloads) - 1 else []


def _torch_all_gather_object(payload: Any, setting: Setting) -> Any:
    received: list[Any] = [None] * setting.size
    dist.all_gather_object(received, payload, group=setting.group)
    return received


def _torch_gather_object(payload: Any, setting: Setting) -> Any:
    root = setting.size - 1
    received: list[Any] | None = [None] * setting.size if setting.rank == root else None
    dist.gather_object(payload, received, dst=root)
    return received or []


OURS: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        _ours(WAYS["all_gather"], kinds=_MEMORY),
        _ours(WAYS["all_gather/files"], kinds=_FILES),
        _ours(WAYS["all_gather_via_filesys"], kinds=_FILES),
        _ours(WAYS["all_gather_list"], kinds=_MEMORY),
        _ours(WAYS["all_gather_object"], kinds=_MEMORY),
        _ours(WAYS["all_gather_shm"], kinds=_SHM),
        _ours(WAYS["gather"], kinds=_MEMORY),
        _ours(WAYS["gather_object"], kinds=_MEMORY),
        NFS_WORKSPACE,
        _ours(WAYS["gather_and_save_checkpoint"], kinds=_FILES, keeps=("*.pt",)),
        _ours(WAYS["get_configs_parallel"], dress=_as_config, kinds=_SHM),
        _ours(WAYS["get_configs_parallel/files"], dress=_as_config, kinds=_FILES),
        _ours(WAYS["get_tensors_parallel"], payloads=TENSOR_PAYLOADS, kinds=_SHM),
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
