"""Every path of the gathers behind one face, and what each rank finds wrong with one call of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from rankdrill import gathers
from rankdrill_strategies import explain_difference, scribble

# Generous for a loaded machine; nothing waits this long unless it is broken.
TIMEOUT_S = 20.0
_LARGE_BYTES = 1 << 24  # more than any payload drawn here encodes to

Path = Callable[[Any, str], list[Any]]


def _all_gather(mine: Any, directory: str) -> list[Any]:
    return gathers.all_gather(mine, timeout=TIMEOUT_S)


def _all_gather_by_files(mine: Any, directory: str) -> list[Any]:
    return gathers.all_gather(mine, force_filesys=True, filesys_save_dir=directory, timeout=TIMEOUT_S)


def _all_gather_via_filesys(mine: Any, directory: str) -> list[Any]:
    return gathers.all_gather_via_filesys(mine, directory, timeout=TIMEOUT_S)


def _all_gather_via_filesys_to_0(mine: Any, directory: str) -> list[Any]:
    return gathers.all_gather_via_filesys(mine, directory, True, timeout=TIMEOUT_S)


def _all_gather_list(mine: Any, directory: str) -> list[Any]:
    return gathers.all_gather_list(mine, max_size=_LARGE_BYTES, timeout=TIMEOUT_S)


def _all_gather_object(mine: Any, directory: str) -> list[Any]:
    received: list[Any] = [None] * dist.get_world_size()
    gathers.all_gather_object(received, mine, timeout=TIMEOUT_S)
    return received


def _all_gather_shm(mine: Any, directory: str) -> list[Any]:
    return gathers.all_gather_shm(mine, timeout=TIMEOUT_S)


def _gather_object_to_last(mine: Any, directory: str) -> list[Any]:
    last = dist.get_world_size() - 1
    received: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == last else None
    gathers.gather_object(mine, received, dst=last, timeout=TIMEOUT_S)
    return received or []


def _configs_by_memory(mine: Any, directory: str) -> list[Any]:
    with gathers.get_configs_parallel(mine, range(dist.get_world_size()), timeout=TIMEOUT_S) as received:
        return received


def _configs_by_files(mine: Any, directory: str) -> list[Any]:
    ranks = range(dist.get_world_size())
    with gathers.get_configs_parallel(mine, ranks, workspace_path=directory, timeout=TIMEOUT_S) as received:
        return received


def _workspace(mine: Any, directory: str) -> list[Any]:
    """The payload once as config and once as weights; every rank reads every rank's pair."""
    with gathers.NFSWorkspace(directory, meeting=True, timeout=TIMEOUT_S) as workspace:
        workspace.write_configs_and_weights(mine, [mine])
        pairs = [workspace.read_configs_and_weights_from_rank(rank) for rank in range(dist.get_world_size())]
        dist.barrier()  # a file goes with its rank's workspace; when all have read is the caller's to know
    for config, (weights,) in pairs:
        assert explain_difference(config, weights) is None
    return [config for config, _ in pairs]


def _tensors(mine: Any, directory: str) -> list[Any]:
    with gathers.get_tensors_parallel(mine, range(dist.get_world_size()), timeout=TIMEOUT_S) as received:
        return received


_FIRST, _LAST = 0, -1
# Each path, and the rank that alone receives, or None where all do.
OBJECT_PATHS: dict[str, tuple[Path, int | None]] = {
    "all_gather": (_all_gather, None),
    "all_gather by files": (_all_gather_by_files, None),
    "all_gather_via_filesys": (_all_gather_via_filesys, None),
    "all_gather_via_filesys to rank 0": (_all_gather_via_filesys_to_0, _FIRST),
    "all_gather_list": (_all_gather_list, None),
    "all_gather_object": (_all_gather_object, None),
    "all_gather_shm": (_all_gather_shm, None),
    "gather_object": (_gather_object_to_last, _LAST),
    "get_configs_parallel by shared memory": (_configs_by_memory, _FIRST),
    "get_configs_parallel by files": (_configs_by_files, _FIRST),
    "NFSWorkspace": (_workspace, None),
}
PATHS = {**OBJECT_PATHS, "get_tensors_parallel": (_tensors, _FIRST)}


def pack(payloads: list[Any]) -> bytes:
    """All ranks' payloads as bytes: by `torch.save`, which carries dtypes that plain pickle loses."""
    file = io.BytesIO()
    torch.save(payloads, file, pickle_protocol=5)
    return file.getvalue()


def unpack(packed: bytes) -> list[Any]:
    """The inverse of `pack`: new objects each time."""
    payloads: list[Any] = torch.load(io.BytesIO(packed), weights_only=False)
    return payloads


def drill(name: str, packed: bytes, directory: str) -> list[str]:
    """On each rank: gather its own of the packed payloads, and say what is wrong with what came of it."""
    gather, only = PATHS[name]
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = unpack(packed)[rank]
    received = gather(mine, directory)
    expected = unpack(packed) if only is None or rank == only % size else []
    wrong = [f"round trip: {explain_difference(expected, received)}"]
    wrong.append(f"its own, changed by gathering it: {explain_difference(unpack(packed)[rank], mine)}")
    if rank == 0 or only is not None:
        # Of the expected ones as many can be changed, unless something came that cannot be written.
        counts = scribble(received), scribble(unpack(packed) if expected else [])
        wrong.append(f"changeable: {None if counts[0] == counts[1] else counts}")
    dist.barrier()
    if rank != 0 and only is None:
        wrong.append(f"received, changed from rank 0: {explain_difference(expected, received)}")
    wrong.append(f"its own, changed through what came back: {explain_difference(unpack(packed)[rank], mine)}")
    again = gather(torch.tensor(rank), directory)
    ranks = [torch.tensor(each) for each in range(size)] if expected else []
    wrong.append(f"next call: {explain_difference(ranks, again)}")
    return [each for each in wrong if not each.endswith(": None")]
