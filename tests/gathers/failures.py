"""Every kind of failure, for every path, and what must be so after it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch
import torch.distributed as dist

from rankdrill.gathers import all_gather_list, get_configs_parallel
from rankdrill.gathers.encoding import coding
from tests.gathers.all_ways import LARGE, SMALL, WAYS, At, Way, open_fds, tensor, troubled, way
from tests.gathers.attempts import Raised, Unloadable, Unpicklable, attempt, left_in_shared_memory, raiser, replaced

RANKS = [0, 1, 2, 3]
TURNS = 2


class Interrupting:
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt("by the user")


@dataclass(frozen=True)
class Failure:
    """One way to fail: what rank `at` does instead of calling as the others do, and what all ranks raise then."""

    name: str
    kind: str
    call: Callable[[Way, At, bool], Any]
    applies: Callable[[Way], bool] = lambda one: True
    ranks: tuple[int, ...] = (1,)


@contextmanager
def no_memory_to_receive(here: bool) -> Iterator[None]:
    refuse = raiser(MemoryError("none left"))
    with ExitStack() as stack:
        for where, name in ((torch, "from_file"), (numpy, "empty"), (coding, "_read_into_torchs")):
            stack.enter_context(replaced(where, name, refuse, here))
        yield


def _sends(trouble: Any) -> Callable[[Way, At, bool], Any]:
    return lambda one, at, here: one(troubled(trouble) if here else tensor(0), at)


def _in_another_path(one: Way, at: At, here: bool) -> Any:
    other = way("all_gather_object" if one.name != "all_gather_object" else "all_gather_shm")
    return (other if here else one)(tensor(0), at)


def _receives_nothing(one: Way, at: At, here: bool) -> Any:
    # Where one rank receives, it is the last.
    with no_memory_to_receive(dist.get_rank(at.group) == 3):
        return one(tensor(0, LARGE), at)


def _cannot_look(one: Way, at: At, here: bool) -> Any:
    with replaced(os, "fstat", raiser(OSError(5, "broken")), here):
        return one(tensor(0), at)


def _has_no_segment(one: Way, at: At, here: bool) -> Any:
    with replaced(os, "memfd_create", raiser(OSError(28, "no room")), here):
        return one(tensor(0, LARGE), at)


def _is_too_large(one: Way, at: At, here: bool) -> Any:
    return all_gather_list(bytes(2000 if here else 1), at.group, 1000, timeout=at.timeout)


def _elsewhere(one: Way, at: At, here: bool) -> Any:
    return one(tensor(0), replace(at, directory=os.path.join(at.directory, "elsewhere")) if here else at)


def _other_arguments(one: Way, at: At, here: bool) -> Any:
    """What differs where it is not the directory: the limit, the route, the receiver."""
    if one.name == "all_gather_list":
        return all_gather_list(0, at.group, 1000 + here, timeout=at.timeout)
    if one.name == "all_gather":
        return (way("all_gather/files") if here else one)(tensor(0), at)
    if one.name == "gather":
        return (way("gather/shm") if here else one)(tensor(0), at)
    with get_configs_parallel(0, [1, 0, 2, 3] if here else RANKS, at.group, timeout=at.timeout) as seen:
        return seen


def _named(*names: str) -> Callable[[Way], bool]:
    return lambda one: one.name in names


CHECKPOINT = "gather_and_save_checkpoint"

FAILURES = (
    Failure("encode", "EncodeError", _sends(Unpicklable())),
    # What a checkpoint holds is tried before it is saved.
    Failure("decode", "DecodeError", _sends(Unloadable()), lambda one: one.name not in (CHECKPOINT, "NFSWorkspace")),
    Failure("decode later", "EncodeError", _sends(Unloadable()), _named(CHECKPOINT)),
    Failure("decode when read", "StorageError", _sends(Unloadable()), _named("NFSWorkspace")),
    Failure("interrupt", "PeerLost", _sends(Interrupting())),
    Failure("desynchronized", "Desynchronized", _in_another_path),
    # In a workspace everybody reads for himself, and nobody else learns what comes of it.
    Failure("memory", "DecodeError", _receives_nothing, lambda one: one.name != "NFSWorkspace", (3,)),
    Failure("file", "StorageError", _cannot_look, lambda one: one.by_files),
    Failure("segment", "StorageError", _has_no_segment, _named("all_gather_shm", "gather/shm")),
    Failure("oversize", "OversizeError", _is_too_large, _named("all_gather_list")),
    Failure("arguments", "ArgumentMismatch", _other_arguments,
            _named("all_gather_list", "all_gather", "gather", "get_configs_parallel")),
    Failure("directory", "ArgumentMismatch", _elsewhere,
            lambda one: one.name == CHECKPOINT or (one.by_files and "default" not in one.name)),
)  # fmt: skip


def fails(failure: Failure, one: Way, at: At) -> Raised | Any | None:
    """The error of one call, None where it is this rank's own interrupt."""
    try:
        return attempt(failure.call, one, at, dist.get_rank(at.group) == failure.ranks[0])
    except KeyboardInterrupt:
        return None


def what_is_wrong_after(one: Way, at: At, mark: int) -> list[Any]:
    """Calls of the same path and of another, which all have to work."""
    me, wrong = dist.get_rank(at.group), []
    following = WAYS[(WAYS.index(one) + mark) % len(WAYS)]
    for next_one, numbers in ((one, LARGE if mark % 2 else SMALL), (following, SMALL if mark % 2 else LARGE)):
        marks = [10 * mark + rank for rank in RANKS]
        got = attempt(next_one, tensor(marks[me], numbers), at)
        if got != next_one.expected(marks, numbers, me):
            wrong.append((next_one.name, numbers, got))
    return wrong


@dataclass
class Told:
    """What a rank tells of one path: the error of every failure, what went wrong after it, what was left."""

    errors: dict[str, list[Any]]
    wrong: list[Any]
    more_fds: int
    in_shared_memory: list[str]


def every_failure(name: str, directory: str, group: Any = None) -> Told:
    """Fail in every way, and call again after each; three times over."""
    one, at = way(name), At(group or dist.group.WORLD, directory)
    # torch looks for a GPU in a process's first barrier, whatever the backend, and keeps its driver open where there is
    # one: 13 descriptors (torch 2.11). Only one of the ways has a barrier; after most failures it comes late.
    dist.barrier(at.group)
    told, before = Told({}, what_is_wrong_after(one, at, 0), 0, []), 0
    for turn in range(TURNS):
        for count, failure in enumerate(failure for failure in FAILURES if failure.applies(one)):
            told.errors.setdefault(failure.name, []).append(fails(failure, one, at))
            wrong = what_is_wrong_after(one, at, len(FAILURES) * turn + count)
            told.wrong += [(failure.name, turn, *what) for what in wrong]
        if turn in (0, TURNS - 1):
            gc.collect()
            told.more_fds = open_fds() - before
            before = open_fds()
    told.in_shared_memory = left_in_shared_memory([os.getpid()])
    return told


def judge(one: Way, ranks: Sequence[Told]) -> None:
    """Whether all ranks raised what they should, all calls after that worked, and nothing is left."""
    assert [told.wrong for told in ranks] == [[]] * 4
    assert [told.in_shared_memory for told in ranks] == [[]] * 4
    assert max(told.more_fds for told in ranks) <= 0, [told.more_fds for told in ranks]
    for failure in (failure for failure in FAILURES if failure.applies(one)):
        for errors in ([rank.errors[failure.name][turn] for rank in ranks] for turn in range(TURNS)):
            shared = [error for rank, error in enumerate(errors) if (failure.kind, rank) != ("PeerLost", 1)]
            assert all(isinstance(error, Raised) for error in shared), (failure.name, errors)
            assert {(error.kind, error.ranks) for error in shared} == {(failure.kind, failure.ranks)}, failure.name
            # Where ranks are in different paths, each says which it is in itself.
            texts = {error.text for error in shared}
            assert len(texts) == 1 or failure.kind == "Desynchronized", (failure.name, texts)
            assert failure.kind != "PeerLost" or errors[1] is None
