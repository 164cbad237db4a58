"""Every public gather under one signature, so that a test can take them all in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.gathers import (
    NFSWorkspace,
    all_gather,
    all_gather_list,
    all_gather_object,
    all_gather_shm,
    all_gather_via_filesys,
    gather,
    gather_and_save_checkpoint,
    gather_object,
    get_configs_parallel,
    get_tensors_parallel,
    load_checkpoint,
)
from rankdrill.gathers.agreement.registry import channel_of
from tests.gathers.attempts import TIMEOUT_S

# In numbers of four bytes: a payload that travels in a slot, and one that does not (200 kB).
SMALL, LARGE = 3, 50_000

ALL, LAST, OWN = "all", "last", "own"


def tensor(mark: int, numbers: int = SMALL) -> torch.Tensor:
    """What ranks send: every path takes a tensor. `mark` says whose it is, and of which turn."""
    return torch.full((numbers,), mark, dtype=torch.int32)


def troubled(trouble: Any, numbers: int = SMALL) -> torch.Tensor:
    """A tensor that cannot be pickled, or loaded, as `trouble` cannot."""
    sent = tensor(0, numbers)
    sent.trouble = trouble  # type: ignore[attr-defined]
    return sent


@dataclass(frozen=True)
class At:
    """Where a gather takes place: on which group, in which directory, within which time."""

    group: Any
    directory: str
    timeout: float = TIMEOUT_S

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    @property
    def members(self) -> list[int]:
        return dist.get_process_group_ranks(self.group)

    @property
    def is_last(self) -> bool:
        return dist.get_rank(self.group) == self.size - 1


@dataclass(frozen=True)
class Way:
    """One way to gather. `call` returns what arrives here; `seen_by` says who sees what.

    `all`: everybody sees all; `last`: the last rank of the group sees all and the others nothing; `own`: each sees its
    own. `by_files` says that payloads lie in files even if they are small.
    """

    name: str
    call: Callable[[Any, At], Any]
    seen_by: str = ALL
    by_files: bool = False

    def __call__(self, value: Any, at: At) -> list[tuple[int, int, int]]:
        """What arrived, in few words: how many numbers, the first, the last."""
        return [(len(one), one[0].item(), one[-1].item()) for one in self.call(value, at) or []]

    def expected(self, marks: list[int], numbers: int, rank: int) -> list[tuple[int, int, int]]:
        """What arrives at group rank `rank` where group rank i sends ``tensor(marks[i], numbers)``."""
        seen = {ALL: marks, LAST: marks if rank == len(marks) - 1 else [], OWN: [marks[rank]]}[self.seen_by]
        return [(numbers, mark, mark) for mark in seen]


def _objects(value: Any, at: At) -> Any:
    received = [None] * at.size
    all_gather_object(received, value, at.group, timeout=at.timeout)
    return received


def _to_last(value: Any, at: At, **to: Any) -> Any:
    received = [None] * at.size if at.is_last else None
    gather_object(value, received, group=at.group, timeout=at.timeout, **to)
    return received


def _configs(value: Any, at: At, workspace: str | None = None) -> Any:
    # The first of `ranks` sees them, in their order: here the last rank of the group, backwards.
    with get_configs_parallel(value, at.members[::-1], at.group, workspace, timeout=at.timeout) as seen:
        return seen[::-1]


def _tensors(value: Any, at: At) -> Any:
    with get_tensors_parallel(value, at.members[::-1], at.group, timeout=at.timeout) as seen:
        return seen[::-1]


def _workspace(value: Any, at: At) -> Any:
    with NFSWorkspace(at.directory, group=at.group, timeout=at.timeout) as workspace:
        workspace.write_configs_and_weights({"of": dist.get_rank()}, value)
        try:
            pairs = [workspace.read_configs_and_weights_from_rank(rank) for rank in at.members]
        finally:
            dist.barrier(at.group)  # what a rank has closed, nobody can read
    assert [config["of"] for config, _ in pairs] == at.members
    return [weights for _, weights in pairs]


def _checkpoint(value: Any, at: At) -> Any:
    name = f"{at.group.group_name}.pt"
    path, last = os.path.join(at.directory, name), at.size - 1
    gather_and_save_checkpoint(path, value, {"name": name}, group=at.group, group_dst=last, timeout=at.timeout)
    loaded = load_checkpoint(path, group=at.group, timeout=at.timeout)
    assert (loaded.shared_state, loaded.world_size) == ({"name": name}, at.size)
    return [loaded.local_state]


WAYS = (
    Way("all_gather", lambda value, at: all_gather(value, group=at.group, timeout=at.timeout)),
    Way(
        "all_gather by files",
        lambda value, at: all_gather(value, False, True, at.directory, group=at.group, timeout=at.timeout),
        by_files=True,
    ),
    Way("all_gather_object", _objects),
    Way("all_gather_shm", lambda value, at: all_gather_shm(value, group=at.group, timeout=at.timeout)),
    Way("all_gather_list", lambda value, at: all_gather_list(value, at.group, 1 << 18, timeout=at.timeout)),
    Way("gather", lambda value, at: gather(value, group=at.group, timeout=at.timeout)),
    Way("gather by shm", lambda value, at: gather(value, "shm", group=at.group, timeout=at.timeout)),
    Way("gather over the network", lambda value, at: gather(value, "network", group=at.group, timeout=at.timeout)),
    Way(
        "gather by files",
        lambda value, at: gather(value, "files", directory=at.directory, group=at.group, timeout=at.timeout),
        by_files=True,
    ),
    Way("gather_object to dst", lambda value, at: _to_last(value, at, dst=at.members[-1]), LAST),
    Way("gather_object to group_dst", lambda value, at: _to_last(value, at, group_dst=at.size - 1), LAST),
    Way(
        "all_gather_via_filesys",
        lambda value, at: all_gather_via_filesys(value, at.directory, group=at.group, timeout=at.timeout),
        by_files=True,
    ),
    Way(
        "all_gather_via_filesys by default",
        lambda value, at: all_gather_via_filesys(value, group=at.group, timeout=at.timeout),
        by_files=True,
    ),
    Way("get_configs_parallel", _configs, LAST),
    Way("get_configs_parallel by files", lambda value, at: _configs(value, at, at.directory), LAST, by_files=True),
    Way("get_tensors_parallel", _tensors, LAST),
    Way("NFSWorkspace", _workspace, by_files=True),
    Way("checkpoint", _checkpoint, OWN),
)


def way(name: str) -> Way:
    return next(one for one in WAYS if one.name == name)


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_local(group: Any) -> bool:
    """Whether the gathers of `group` go over the page of one machine."""
    return channel_of(group).one_host
