"""The only module of the gathers that touches private torch APIs.

`tests/gathers/test_torch_seam.py` fails when one of them changes.

What is used, and why:

- ``distributed_c10d._new_process_group_helper``: makes a group under a name of our choice. The public `new_group`
  names a group after a counter that differs between ranks as soon as one is in a subgroup (torch 2.13: the hashed name
  contains ``len(_world.pg_names)``), and then the ranks wait for one another under different names.
- ``distributed_c10d._world`` and ``_unregister_process_group``: the companion group is taken out of torch's tables
  again, so that it changes no later name and lives exactly as long as we hold it. They also hold each group's store,
  which no group of torch 2.6 or 2.8 can be asked for.
- ``distributed_c10d._get_process_group_name``: of a group written in Python that does not know its name.
- ``distributed_c10d._get_default_store``: where a group written in Python holds no store of its own.
- What gloo writes into a group's store when it connects: at which address each member listens for as long as it is in
  the group. So a member can be known to have left that never told us which process it is.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c
from torch.distributed import distributed_c10d as c10d

__all__ = [
    "AllgatherOptions",
    "BroadcastOptions",
    "bound_device",
    "cpu_backend",
    "cuda_backend",
    "gloo_address",
    "jobs_store",
    "make_group",
    "name_of",
    "store_of",
    "timeout_of",
]

_OWN_BACKEND = "rankdrill_local"
_CPU_BACKENDS = ("gloo", "mpi", "ucc")
_LENGTH = struct.Struct("=Q")
_SOCKADDR_BYTES = 128

AllgatherOptions = c.AllgatherOptions
BroadcastOptions = c.BroadcastOptions


def make_group(
    name: str,
    store: Any,
    ranks: Sequence[int],
    rank: int,
    backend: str,
    timeout: datetime.timedelta,
    make: Callable[[], Any] | None = None,
) -> Any:
    """A process group of `ranks` (global) called `name`, unknown to torch's tables; `rank` is ours within it.

    With `make` it is what that returns, a group of our own, and `backend` is ignored.
    """
    group, _ = c10d._new_process_group_helper(
        len(ranks),
        rank,
        list(ranks),
        _made_by_us() if make else dist.Backend(backend),
        store,
        name,  # type: ignore[arg-type]
        backend_options=make,
        timeout=timeout,
        group_desc="rankdrill gathers",
    )
    _forget(group, name)
    return group


@functools.cache
def _made_by_us() -> Any:
    """A backend whose groups are made by the function that is given as its options."""
    dist.Backend.register_backend(_OWN_BACKEND, lambda _, make: make(), extended_api=True, devices=["cpu"])
    return dist.Backend(_OWN_BACKEND)


def is_made_by_us(group: Any) -> bool:
    """Whether `group` was made with `make`, however it may be wrapped."""
    # torch's own class, which a group made with gloo is an instance of outside of drills, calls it `name`.
    asked = group.name if type(group) is dist.ProcessGroup else group.getBackendName
    return bool(asked() == _OWN_BACKEND)


def name_of(group: Any) -> str:
    """The name that all members of `group` have for it, also where its backend, written in Python, does not tell."""
    try:
        return str(group.group_name)
    except RuntimeError:
        return str(c10d._get_process_group_name(group))


def store_of(group: Any) -> Any:
    """The store the members of `group` share; None where there is none, as in torch's fake and threaded groups."""
    store = None
    with contextlib.suppress(AttributeError, KeyError, RuntimeError):
        can_be_asked = hasattr(dist.ProcessGroup, "get_group_store")
        store = group.get_group_store() if can_be_asked else c10d._world.pg_map[group][1]
    if store is None and (default := c10d._get_default_store()) is not None:
        store = c.PrefixStore(f"rankdrill/{name_of(group)}", default)
    try:
        if store is not None:
            store.check([""])
    except RuntimeError:  # a store in name only
        return None
    return store


def gloo_address(store: Any, rank: int) -> tuple[str, int] | None:
    """Where member `rank` of a gloo group listens, by the group's `store`: IP and port, or None."""
    key = f"cpu//0/{rank}"
    if not store.check([key]):
        return None
    raw = bytes(store.get(key))
    try:
        (host_bytes,) = _LENGTH.unpack_from(raw)
        (address_bytes,) = _LENGTH.unpack_from(raw, _LENGTH.size + host_bytes)
        at = 2 * _LENGTH.size + host_bytes
        (family,), (port,) = struct.unpack_from("=H", raw, at), struct.unpack_from(">H", raw, at + 2)
    except struct.error:
        return None
    if address_bytes < _SOCKADDR_BYTES or len(raw) < at + address_bytes:
        return None
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[at + 4 : at + 8]), port
    return (socket.inet_ntop(family, raw[at + 8 : at + 24]), port) if family == socket.AF_INET6 else None


def jobs_store() -> Any:
    """The store of the default group; None where there is none."""
    return store_of(dist.group.WORLD) if dist.is_initialized() else None


def cpu_backend(group: Any) -> str:
    """The backend for CPU tensors that groups beside `group` are made with: its own if torch has it, else gloo."""
    own = _backends(group).get("cpu", "gloo")
    return own if own in _CPU_BACKENDS else "gloo"


def cuda_backend(group: Any) -> str:
    """The backend `group` uses for CUDA tensors, or an empty string."""
    return _backends(group).get("cuda", "")


def timeout_of(group: Any) -> float:
    """Seconds after which the operations of `group` give up; torch's default where it does not say, or is None."""
    if group is not None:
        for device in group._device_types:
            options = getattr(group._get_backend(device), "options", None)
            if options is not None:
                return float(options._timeout.total_seconds())
    return float(c10d.default_pg_timeout.total_seconds())


def bound_device(group: Any) -> torch.device | None:
    """The GPU that `group` was bound to when it was made (`device_id`), or None."""
    device: torch.device | None = getattr(group, "bound_device_id", None)
    return device if device is not None and device.type == "cuda" else None


def _backends(group: Any) -> dict[str, str]:
    config = str(dist.get_backend_config(group))
    pairs = (part.partition(":") for part in config.split(","))
    return {device: backend for device, colon, backend in pairs if colon}


def _forget(group: Any, name: str) -> None:
    """Take `group` out of torch's tables.

    Step by step only what no other thread interferes with: another one may be making a group, ours or the caller's.
    """
    world = c10d._world
    tag = world.pg_to_tag.pop(group, "")
    for table in (world.pg_map, world.pg_names, world.pg_group_ranks, world.pg_backend_config):
        table.pop(group, None)
    # Every group is under the tag "" too, where the default group stays.
    for groups in (world.tags_to_pg.get("", []), world.tags_to_pg.get(tag, [])):
        with contextlib.suppress(ValueError):
            groups.remove(group)
    if tag and not world.tags_to_pg.get(tag):
        world.tags_to_pg.pop(tag, None)
    c._unregister_process_group(name)  # type: ignore[arg-type]
