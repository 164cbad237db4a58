"""`all_gather`: by CUDA, CPU or files, as arguments and environment say, if all ranks are told the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.channel import Channel
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.all_gather_via_filesys import directory_of, gather_by_files
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.transfer.by_gpu import at_all_padded, device_of, name_gpu, require_own_gpus
from rankdrill.gathers.transfer.moves import at_all, load_all

__all__ = ["all_gather"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called


@dataclass(frozen=True)
class _Route:
    """How the payloads go; equal on all ranks, or the call fails."""

    by: str
    rank_0_only: bool = False
    directory: str | None = None
    asked: bool = False  # for the CPU, and not only as there is nothing else

    def __str__(self) -> str:
        return f"transfer by {self.by}{', as asked' if self.asked else ''}" + (
            f"{' to rank 0 only' if self.rank_0_only else ''} in {self.directory or 'the default directory'}"
            if self.by == "files"
            else ""
        )


def all_gather(
    data: Any,
    force_cpu: bool = False,
    force_filesys: bool = False,
    filesys_save_dir: str | os.PathLike[str] | None = None,
    *,
    group: Any = None,
    weights_only: bool = False,
    timeout: float | None = None,
) -> list[Any]:
    """Every rank's `data`, in group rank order.

    Payloads go over CUDA where the group's CUDA backend is NCCL (padded to the largest), else over the CPU (by their
    own size); over the CPU with `force_cpu` or ``MDETR_CPU_REDUCE=1``; through files with `force_filesys` or
    ``MDETR_FILESYS_REDUCE=1``; through files and to group rank 0 only, with an empty list elsewhere, with
    ``MDETR_FILESYS_REDUCE_RANK_0_ONLY=1``. A switch that is not set on all ranks is an ArgumentMismatch.

    A world of one returns a copy too, so that what fails on many ranks fails on one. With `weights_only` nothing is
    unpickled but by torch's safe unpickler. `timeout`, in seconds and by default that of the group, bounds each wait
    for the others. Raises on all ranks together: ArgumentMismatch, EncodeError, DecodeError, StorageError,
    Desynchronized, PeerLost.
    """
    channel = channel_of(group)
    group = group if group is not None or not dist.is_initialized() else dist.group.WORLD
    with GatherCall(channel, "all_gather", timeout, weights_only=weights_only) as call:
        route = call.attempt(
            TroubleKind.ARGUMENT, lambda: _route(channel, group, force_cpu, force_filesys, filesys_save_dir)
        )
        route = route or _Route("cpu")
        call.arguments = str(route)
        if route.by == "files":
            return gather_by_files(call, data, route.directory, route.rank_0_only)
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(data))
        if route.by == "cuda":
            call.gpu = call.attempt(TroubleKind.ARGUMENT, lambda: name_gpu(device_of(group))) or b""
        slots = call.agree(payload, by_tray=route.by == "cpu")
        if route.by == "cuda":
            require_own_gpus(call, slots)
            values = load_all(call, slots, at_all_padded(call, slots, payload, group, device_of(group)))
            call.confirm()
            return values
        with at_all(call, slots, payload) as loaders:
            values = load_all(call, slots, loaders)
            call.confirm()
    return values


def _route(channel: Channel, group: Any, force_cpu: bool, force_filesys: bool, directory: Any) -> _Route:
    if _switched_on("MDETR_FILESYS_REDUCE_RANK_0_ONLY"):
        return _Route("files", True, directory_of(directory))
    if _switched_on("MDETR_FILESYS_REDUCE") or force_filesys:
        return _Route("files", False, directory_of(directory))
    if _switched_on("MDETR_CPU_REDUCE") or force_cpu:
        return _Route("cpu", asked=True)
    if channel.size == 1:
        return _Route("cpu")
    on_cuda = torch_seam.cuda_backend(group) == "nccl" and torch.cuda.is_available()
    return _Route("cuda" if on_cuda else "cpu")


def _switched_on(variable: str) -> bool:
    return os.environ.get(variable) == "1"
