"""Every public gather of rankdrill's own under one signature: what drills, tests and benchmarks call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch.distributed as dist

from rankdrill import gathers

__all__ = ["WAYS", "At", "Receives", "Way"]


class Receives(StrEnum):
    """Who is given what."""

    ALL = "everybody is given all"
    ONE = "one rank is given all, the others nothing"
    OWN = "everybody is given their own"


@dataclass(frozen=True, slots=True)
class At:
    """Where a gather takes place, equal on all ranks of `group`.

    `directory` is for payloads in files, `room` bounds a pickled payload in bytes, where that is needed; `timeout` is
    in seconds. Where one rank receives it is `receiver` of the group, by default the last, so that one that is ignored
    shows.
    """

    group: Any
    directory: str
    timeout: float | None = None
    receiver: int = -1
    room: int = 1 << 22
    weights_only: bool = False

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    @property
    def members(self) -> list[int]:
        """The global ranks of the group, in its order."""
        return dist.get_process_group_ranks(self.group)

    @property
    def receives(self) -> bool:
        """Whether this rank is the receiver."""
        return dist.get_rank(self.group) == self.receiver % self.size

    @property
    def common(self) -> dict[str, Any]:
        """What every gather takes."""
        return {"group": self.group, "weights_only": self.weights_only, "timeout": self.timeout}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to gather: `call(payload, at)` on every rank of the group returns what arrives there.

    `gather` is the public function, `by_files` says that payloads lie in files even if they are small, `tensors_only`
    that it takes a tensor or None.
    """

    name: str
    gather: str
    call: Callable[[Any, At], list[Any]]
    receives: Receives = Receives.ALL
    by_files: bool = False
    tensors_only: bool = False

    def given_to(self, rank: int, payloads: Sequence[Any], receiver: int = -1) -> list[Any]:
        """What group rank `rank` is to be given of all ranks' `payloads`."""
        if self.receives is Receives.OWN:
            return [payloads[rank]]
        return list(payloads) if self.receives is Receives.ALL or rank == receiver % len(payloads) else []


def _all_gather(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather(payload, **at.common)


def _all_gather_cpu(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather(payload, force_cpu=True, **at.common)


def _all_gather_files(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather(payload, force_filesys=True, filesys_save_dir=at.directory, **at.common)


def _via_filesys(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather_via_filesys(payload, at.directory, **at.common)


def _via_filesys_by_default(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather_via_filesys(payload, **at.common)


def _list(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather_list(payload, at.group, at.room, weights_only=at.weights_only, timeout=at.timeout)


def _object(payload: Any, at: At) -> list[Any]:
    received = [None] * at.size
    gathers.all_gather_object(received, payload, **at.common)
    return received


def _shm(payload: Any, at: At) -> list[Any]:
    return gathers.all_gather_shm(payload, **at.common)


def _gather(payload: Any, at: At, path: str = "auto") -> list[Any]:
    received: list[Any] = gathers.gather(payload, path, directory=at.directory, **at.common)
    return received


def _gather_shm(payload: Any, at: At) -> list[Any]:
    return _gather(payload, at, "shm")


def _gather_network(payload: Any, at: At) -> list[Any]:
    return _gather(payload, at, "network")


def _gather_files(payload: Any, at: At) -> list[Any]:
    return _gather(payload, at, "files")


def _to_dst(payload: Any, at: At) -> list[Any]:
    received = [None] * at.size if at.receives else None
    gathers.gather_object(payload, received, dst=at.members[at.receiver], **at.common)
    return received or []


def _to_group_dst(payload: Any, at: At) -> list[Any]:
    received = [None] * at.size if at.receives else None
    gathers.gather_object(payload, received, group_dst=at.receiver % at.size, **at.common)
    return received or []


def _receiver_first(at: At) -> list[int]:
    """The global ranks as gathers to the first of them take them, with the receiver there."""
    receiver = at.members[at.receiver]
    return [receiver, *(rank for rank in at.members if rank != receiver)]


def _in_order(received: Sequence[Any], at: At) -> list[Any]:
    """What came in the order of `_receiver_first`, in that of the group."""
    by_rank = dict(zip(_receiver_first(at), received, strict=False))
    return [by_rank[rank] for rank in at.members] if received else []


def _configs(payload: Any, at: At, workspace: str | None = None) -> list[Any]:
    with gathers.get_configs_parallel(payload, _receiver_first(at), workspace_path=workspace, **at.common) as received:
        return _in_order(received, at)


def _configs_files(payload: Any, at: At) -> list[Any]:
    return _configs(payload, at, at.directory)


def _tensors(payload: Any, at: At) -> list[Any]:
    with gathers.get_tensors_parallel(payload, _receiver_first(at), **at.common) as received:
        return _in_order(received, at)


def _workspace(payload: Any, at: At) -> list[Any]:
    with gathers.NFSWorkspace(at.directory, meeting=True, **at.common) as workspace:
        workspace.write_configs_and_weights({"of": dist.get_rank()}, payload)
        try:
            pairs = [workspace.read_configs_and_weights_from_rank(rank) for rank in at.members]
        finally:
            dist.barrier(at.group)  # what a rank has closed, nobody can read
    assert [config["of"] for config, _ in pairs] == at.members
    return [weights for _, weights in pairs]


def _checkpoint(payload: Any, at: At) -> list[Any]:
    path = os.path.join(at.directory, f"{at.group.group_name}.pt")
    shared = {"path": path}
    gathers.gather_and_save_checkpoint(path, payload, shared, group_dst=at.receiver % at.size, **at.common)
    loaded = gathers.load_checkpoint(path, **at.common)
    assert (loaded.shared_state, loaded.world_size) == (shared, at.size)
    return [loaded.local_state]


WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        Way("all_gather", "all_gather", _all_gather),
        Way("all_gather/cpu", "all_gather", _all_gather_cpu),
        Way("all_gather/files", "all_gather", _all_gather_files, by_files=True),
        Way("all_gather_via_filesys", "all_gather_via_filesys", _via_filesys, by_files=True),
        Way("all_gather_via_filesys/default", "all_gather_via_filesys", _via_filesys_by_default, by_files=True),
        Way("all_gather_list", "all_gather_list", _list),
        Way("all_gather_object", "all_gather_object", _object),
        Way("all_gather_shm", "all_gather_shm", _shm),
        Way("gather", "gather", _gather),
        Way("gather/shm", "gather", _gather_shm),
        Way("gather/network", "gather", _gather_network),
        Way("gather/files", "gather", _gather_files, by_files=True),
        Way("gather_object", "gather_object", _to_dst, Receives.ONE),
        Way("gather_object/group_dst", "gather_object", _to_group_dst, Receives.ONE),
        Way("NFSWorkspace", "NFSWorkspace", _workspace, by_files=True),
        Way("gather_and_save_checkpoint", "gather_and_save_checkpoint", _checkpoint, Receives.OWN),
        Way("get_configs_parallel", "get_configs_parallel", _configs, Receives.ONE),
        Way("get_configs_parallel/files", "get_configs_parallel", _configs_files, Receives.ONE, by_files=True),
        Way("get_tensors_parallel", "get_tensors_parallel", _tensors, Receives.ONE, tensors_only=True),
    )
}
