"""`gather`: every rank gets everything, by the way that suits the payloads and the machines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, overload

import torch
import torch.distributed as dist

from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.channel import Channel
from rankdrill.gathers.agreement.outcomes import TroubleKind
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.agreement.slots import Slot
from rankdrill.gathers.all_gather_via_filesys import directory_of, gather_by_files
from rankdrill.gathers.encoding.wire import Encoded
from rankdrill.gathers.network import torch_seam
from rankdrill.gathers.transfer.by_gpu import at_all_padded, device_of, name_gpu, require_own_gpus
from rankdrill.gathers.transfer.moves import (
    Loader,
    at_all,
    at_all_by_segments,
    at_all_over_the_network,
    load_all,
)

__all__ = ["gather"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

AUTO, SHM, NETWORK, CUDA, FILES = "auto", "shm", "network", "cuda", "files"
WAYS = (AUTO, SHM, NETWORK, CUDA, FILES)

# Padding to the largest pays where all are nearly so large: one collective of the device for a broadcast per rank.
NEARLY = 0.8


@overload
def gather(
    data: Any,
    path: str = AUTO,
    *,
    directory: str | os.PathLike[str] | None = None,
    explain: Literal[False] = False,
    group: Any = None,
    weights_only: bool = False,
    timeout: float | None = None,
) -> list[Any]: ...
@overload
def gather(
    data: Any,
    path: str = AUTO,
    *,
    directory: str | os.PathLike[str] | None = None,
    explain: Literal[True],
    group: Any = None,
    weights_only: bool = False,
    timeout: float | None = None,
) -> tuple[list[Any], str]: ...
def gather(
    data: Any,
    path: str = AUTO,
    *,
    directory: str | os.PathLike[str] | None = None,
    explain: bool = False,
    group: Any = None,
    weights_only: bool = False,
    timeout: float | None = None,
) -> list[Any] | tuple[list[Any], str]:
    """Every rank's `data`, in group rank order; with `explain` also a line that says which way it went, and why.

    `path` is ``shm`` (shared memory of one machine), ``network``, ``cuda`` (NCCL, padded to the largest), ``files``
    (below `directory`, as in `all_gather_via_filesys`), or ``auto``, which chooses among the first three from what all
    ranks know: who shares a machine, how large the payloads are, and whether the group has NCCL. Small payloads travel
    with the agreement whatever the path, but for files. With `weights_only` nothing is unpickled but by torch's safe
    unpickler. `timeout`, in seconds and by default that of the group, bounds each wait for the others.

    Raises on all ranks together: ArgumentMismatch (another or an unknown `path`, different `weights_only`),
    StorageError, EncodeError, DecodeError, Desynchronized, PeerLost.
    """
    channel = channel_of(group)
    group = group if group is not None or not dist.is_initialized() else dist.group.WORLD
    with GatherCall(channel, "gather", timeout, weights_only=weights_only) as call:
        if path not in WAYS:
            call.report(TroubleKind.ARGUMENT, f"path={path!r}: give one of {', '.join(WAYS)}")
        if path == FILES:
            where = call.attempt(TroubleKind.ARGUMENT, lambda: directory_of(directory))
            call.arguments = f"path={path}, directory={where or 'default'}"
            values = gather_by_files(call, data, where, rank_0_only=False)
            return (values, f"files below {where or 'the default directory'}, as asked for") if explain else values
        nccl = path in (AUTO, CUDA) and channel.size > 1 and _has_nccl(group)
        if path == CUDA and not nccl:
            call.report(TroubleKind.ARGUMENT, "path='cuda': the group has no NCCL backend, or this rank no GPU")
        call.arguments = f"path={path}, NCCL={nccl}"
        payload = call.attempt(TroubleKind.ENCODE, lambda: call.coding.encode(data))
        if nccl:
            call.gpu = call.attempt(TroubleKind.ARGUMENT, lambda: name_gpu(device_of(group))) or b""
        slots = call.agree(payload, by_tray=path == AUTO)
        way, why = _choose(channel, slots, path, nccl)
        with _received(call, slots, payload, path, way, group) as loaders:
            values = load_all(call, slots, loaders)
            call.confirm()
    return (values, why) if explain else values


def _choose(channel: Channel, slots: Sequence[Slot], path: str, nccl: bool) -> tuple[str, str]:
    """The way and the reason for it; equal on all ranks, as all that it depends on is."""
    large = [slot.size for slot in slots if slot.in_tray or not slot.inline]
    if not large:
        return NETWORK, f"with the agreement: no payload has more than {max(slot.size for slot in slots)} bytes"
    sizes = f"{len(large)} of {len(slots)} payloads are large, {min(large):,} to {max(large):,} bytes"
    if path != AUTO:
        return path, f"{path}, as asked for: {sizes}"
    if channel.one_host:
        return SHM, f"shared memory: {channel.size} ranks on one machine; {sizes}"
    machines = f"{channel.size} ranks on {len(channel.sharing)} machines ({' | '.join(map(_listed, channel.sharing))})"
    if nccl and min(slot.size for slot in slots) >= NEARLY * max(large):
        return CUDA, f"NCCL: {machines}; {sizes}, all nearly as large"
    if len(channel.sharing) < channel.size:
        return AUTO, f"once to each machine, shared memory within: {machines}; {sizes}"
    return NETWORK, f"a broadcast per payload: {machines}; {sizes}"


@contextmanager
def _received(
    call: GatherCall, slots: Sequence[Slot], payload: Encoded | None, path: str, way: str, group: Any
) -> Iterator[list[Loader]]:
    if way == CUDA:
        require_own_gpus(call, slots)
        yield at_all_padded(call, slots, payload, group, device_of(group))
        return
    if way == SHM and path == SHM:
        # What was chosen may fall back on the network; what was asked for may not.
        call.require_one_host("use path='auto'")
        by = at_all_by_segments
    else:
        by = at_all_over_the_network if way == NETWORK else at_all
    with by(call, slots, payload) as loaders:
        yield loaders


def _has_nccl(group: Any) -> bool:
    return torch_seam.cuda_backend(group) == "nccl" and torch.cuda.is_available()


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
