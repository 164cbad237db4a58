"""A rank that leaves its group while another still connects to it: the moment of a race in gloo, held open."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

__all__ = ["connect_late", "connect_never"]

_LOOPBACK = b"\x7f\x00\x00\x01"
_PATIENCE_S = 20.0
_PAUSE_S = 0.01
_ONLY_SO_LONG_S = 1.0  # if nobody leaves
_NOT_YET = 1 << 30


class _LateStore(Store):
    """The store that ranks meet in, where the last to connect comes when the first one has left.

    Of two ranks gloo has that one connect whose port is higher, as the machine's bytes lie: who has the highest is
    through without the others' doing anything, and leaves. Who has the lowest takes connections that are there
    already. Its own thread then has to see that this one is closed before the rank's sees that it was open, as it does
    on a busy machine now and then: so the rank gives way to it.
    """

    def __init__(self, inner: Store, rank: int, size: int, gone: Path, patience: float) -> None:
        super().__init__()
        self.inner, self.rank, self.size, self.gone, self.patience = inner, rank, size, gone, patience
        self.first = -1
        self.stays = False  # whether the last to connect never does

    def hold_back(self) -> None:
        """Delay nobody until `expect` is called."""
        self.first = _NOT_YET

    def expect(self) -> None:
        """The group whose connecting is delayed is made next."""
        self.first = -1

    def set(self, key: str, value: Any) -> None:
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        return bytes(self.inner.get(key))

    def wait(self, keys: list[str], *timeout: Any) -> None:
        if self.first < 0:
            prefix = keys[0].rpartition("/")[0]
            addresses = [self.inner.get(f"{prefix}/{rank}") for rank in range(self.size)]
            order = sorted(range(self.size), key=lambda rank: _port(addresses[rank]))
            self.first = order[-1]
            if self.rank == order[0]:
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                _until(lambda: _is_gone(self.gone), self.patience)
                while self.stays:
                    time.sleep(_PAUSE_S)
        self.inner.wait(keys, *timeout)


def connect_late(directory: str, size: int, leave: Callable[[], None] | None, *, stays: bool = False) -> str:
    """Meet in a group of `size`; the first one through with it leaves at once, by `leave`, or all after a barrier."""
    rank = int(os.environ["RANK"])
    if rank >= size:
        return "another"
    # One processor for gloo's thread and the rank's.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    gone = Path(directory) / "gone"
    patience = _ONLY_SO_LONG_S if leave is None else _PATIENCE_S
    files = dist.FileStore(str(Path(directory) / "store"), size)  # type: ignore[attr-defined]
    store = _LateStore(files, rank, size, gone, patience)
    store.stays = stays
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    if leave is None:
        dist.barrier()
        dist.destroy_process_group()
        return "left"
    if rank != store.first:
        return "stayed"
    (gone.with_name("leaves")).write_text(str(os.getpid()))
    leave()
    gone.touch()
    return "left"


def connect_never(directory: str, local: bool | None) -> str:
    """As `connect_late`, but the last one goes on waiting: in a group that is made later, if `local` is given.

    `local` says whether that is made with ``use_local_synchronization``.
    """
    if local is None:
        return connect_late(directory, int(os.environ["WORLD_SIZE"]), _destroy, stays=True)
    return _connect_in_a_group(directory, local)


def _destroy() -> None:
    dist.destroy_process_group()  # leaves


def _connect_in_a_group(directory: str, local: bool) -> str:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    gone = Path(directory) / "gone"
    files = dist.FileStore(str(Path(directory) / "store"), size)  # type: ignore[attr-defined]
    store = _LateStore(files, rank, size, gone, _PATIENCE_S)
    store.stays = True
    store.hold_back()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    dist.barrier()
    store.expect()
    group = dist.new_group(list(range(size)), use_local_synchronization=local)
    if rank != store.first:
        return "stayed"
    (gone.with_name("leaves")).write_text(str(os.getpid()))
    dist.destroy_process_group(group)  # leaves
    gone.touch()
    return "left"


def _port(address: bytes) -> int:
    """Of what gloo tells others, an IPv4 address of the system's: the port comes before the host."""
    (port,) = struct.unpack("=H", address.partition(_LOOPBACK)[0][-2:])
    return int(port)


def _is_gone(gone: Path) -> bool:
    """Whether the rank that leaves has closed its connections, or its process is over."""
    leaves = gone.with_name("leaves")
    pid = leaves.read_text() if leaves.exists() else ""
    if gone.exists() or not pid:
        return gone.exists()
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _until(condition: Callable[[], bool], patience: float) -> None:
    end = time.monotonic() + patience
    while not condition() and time.monotonic() < end:
        time.sleep(_PAUSE_S)
