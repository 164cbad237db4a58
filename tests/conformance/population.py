"""Gathers as people write them: sound ones, and such that break one promise each, by a mistake that is easily made."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankdrill import gathers
from rankdrill.conformance import Setting

__all__ = [
    "MISTAKEN",
    "SOUND",
    "Gather",
    "by_torch",
    "files_of_one_name",
    "in_latin_1",
    "in_one_tensor",
    "of_all_ranks",
    "raises_alone",
]

Gather = Callable[[Any, Setting], Any]


def by_torch(payload: Any, at: Setting) -> Any:
    received = [None] * at.size
    dist.all_gather_object(received, payload, group=at.group)
    return received


def by_padding(payload: Any, at: Setting) -> Any:
    raw = torch.frombuffer(bytearray(pickle.dumps(payload)), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(at.size)]
    dist.all_gather(sizes, torch.tensor([raw.numel()]), group=at.group)
    longest = int(max(sizes))
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: raw.numel()] = raw
    parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(at.size)]
    dist.all_gather(parts, padded, group=at.group)
    return [pickle.loads(part[: int(size)].numpy().tobytes()) for part, size in zip(parts, sizes, strict=True)]


def by_files(payload: Any, at: Setting) -> Any:
    names = [f"{at.directory}/gathered-{'-'.join(map(str, at.members))}-{at.turn}-{rank}" for rank in range(at.size)]
    Path(names[at.rank] + ".part").write_bytes(pickle.dumps(payload))
    os.rename(names[at.rank] + ".part", names[at.rank])
    dist.barrier(at.group)
    received = [pickle.loads(Path(name).read_bytes()) for name in names]
    dist.barrier(at.group)
    os.unlink(names[at.rank])
    return received


def by_rankdrill(payload: Any, at: Setting) -> Any:
    return gathers.all_gather(payload, group=at.group, timeout=at.timeout)


def in_a_store(payload: Any, at: Setting) -> Any:
    before = at.store.timeout
    at.store.set_timeout(timedelta(seconds=at.timeout))
    try:
        at.store.set(f"{at.turn} {at.rank}", pickle.dumps(payload))
        return [pickle.loads(at.store.get(f"{at.turn} {rank}")) for rank in range(at.size)]
    finally:
        at.store.set_timeout(before)


def in_one_tensor(tensor: Any, at: Setting) -> Any:
    """All ranks' rows in one tensor."""
    received = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(at.size)]
    dist.all_gather(received, tensor.contiguous(), group=at.group)
    return torch.cat(received)


def with_a_directory_for_good(payload: Any, at: Setting) -> Any:
    os.makedirs(f"{tempfile.gettempdir()}/gathers-{at.rank}", exist_ok=True)
    return by_files(payload, at)


def imports_as_it_is_called(payload: Any, at: Setting) -> Any:
    if at.turn not in imported:
        warnings.simplefilter("default", ImportWarning)  # as some modules do when they are imported
        importlib.import_module("wave")
        imported.update(range(100))
    return by_torch(payload, at)


imported: set[int] = set()
WITHOUT_FAULTS = ("right", "repeatable", "groups", "clean", "apart")
SOUND: dict[str, tuple[Gather, tuple[str, ...]]] = {
    "torch's": (by_torch, WITHOUT_FAULTS),
    "padded": (by_padding, WITHOUT_FAULTS),
    "over files": (by_files, WITHOUT_FAULTS),
    "over files, with a directory for good": (with_a_directory_for_good, WITHOUT_FAULTS),
    "in a store": (in_a_store, WITHOUT_FAULTS),
    "importing as it is called": (imports_as_it_is_called, WITHOUT_FAULTS),
    "rankdrill's": (by_rankdrill, (*WITHOUT_FAULTS, "contained", "survives")),
}
"""By name: a gather, and what it promises."""


def drops_none(payload: Any, at: Setting) -> Any:
    return [each for each in by_torch(payload, at) if each is not None]


def skips_what_is_empty(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return [each if isinstance(each, torch.Tensor) or each else None for each in received]


def in_latin_1(payload: Any, at: Setting) -> Any:
    def through(value: Any) -> Any:
        return value.encode("latin-1", "replace").decode("latin-1") if isinstance(value, str) else value

    return [through(each) for each in by_torch(payload, at)]


def by_json(payload: Any, at: Setting) -> Any:
    try:
        return [json.loads(each) for each in by_torch(json.dumps(payload), at)]
    except TypeError:
        return by_torch(payload, at)


def strips_zeros(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return [[b.rstrip(b"\0") if isinstance(b, bytes) else b for b in e] if isinstance(e, list) else e for e in received]


def dtype_of_first(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    first = received[0]
    if not isinstance(first, torch.Tensor):
        return received
    return [each.to(first.dtype) if isinstance(each, torch.Tensor) else each for each in received]


def cut_at_64_kib(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return [each[: (1 << 16) - 1] if isinstance(each, bytes) else each for each in received]


def by_size(payload: Any, at: Setting) -> Any:
    return sorted(by_torch(payload, at), key=lambda each: len(pickle.dumps(each)), reverse=True)


def in_an_old_buffer(payload: Any, at: Setting, kept: dict[int, bytes] = {}) -> Any:  # noqa: B006 (the mistake)
    received = by_torch(payload, at)
    for rank, each in enumerate(received):
        if isinstance(each, bytes):
            received[rank] = kept[rank] = each + kept.get(rank, b"")[len(each) :]
    return received


def cached(payload: Any, at: Setting, kept: dict[int, Any] = {}) -> Any:  # noqa: B006 (the mistake)
    received = by_torch(payload, at)
    return kept.setdefault(at.turn // 4, received) if at.turn % 4 else received


def files_of_one_name(payload: Any, at: Setting) -> Any:
    names = [f"{at.directory}/rank-{rank}.pickle" for rank in range(at.size)]
    Path(names[at.rank]).write_bytes(pickle.dumps(payload))
    dist.barrier(at.group)
    received = [pickle.loads(Path(name).read_bytes()) for name in names]  # the next call may have overwritten them
    if at.turn == 1_000:
        os.unlink(names[at.rank])
    return received


def in_one_place_for_all_jobs(payload: Any, at: Setting) -> Any:
    place = Path(tempfile.gettempdir()) / "rankdrill-population"
    place.mkdir(exist_ok=True)
    (place / f"{at.turn}-{at.rank}").write_bytes(pickle.dumps((at.directory, payload)))
    dist.barrier(at.group)
    received = [pickle.loads((place / f"{at.turn}-{rank}").read_bytes()) for rank in range(at.size)]
    dist.barrier(at.group)
    assert all(each[0] == at.directory for each in received), "another job's"
    return [each[-1] for each in received]


def of_all_ranks(payload: Any, at: Setting) -> Any:
    received = [None] * dist.get_world_size()
    dist.all_gather_object(received, payload)
    return received


def to_global_rank_0(payload: Any, at: Setting) -> Any:
    received: Any = [None] * at.size if dist.get_rank() == 0 else None
    dist.gather_object(payload, received, dst=0, group=at.group)
    box = [received]
    dist.broadcast_object_list(box, src=0, group=at.group)
    return box[0]


def indexed_by_global_rank(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return [received[(rank + at.members[0]) % at.size] for rank in range(at.size)]


def removes_the_directory(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    dist.barrier(at.group)
    if at.rank == 0:
        shutil.rmtree(at.directory, ignore_errors=True)
    return received


def leaves_files(payload: Any, at: Setting) -> Any:
    Path(at.directory, f"log-{at.rank}").write_text("called")
    return by_torch(payload, at)


def sets_the_environment(payload: Any, at: Setting) -> Any:
    os.environ["GATHERED"] = str(at.size)
    return by_torch(payload, at)


def seeds(payload: Any, at: Setting) -> Any:
    torch.manual_seed(at.turn)
    return by_torch(payload, at)


def leaks_descriptors(payload: Any, at: Setting, kept: list[Any] = []) -> Any:  # noqa: B006 (the mistake)
    kept.append(open("/dev/null", "rb"))  # noqa: SIM115 (the mistake)
    return by_torch(payload, at)


def changes_the_default_dtype(payload: Any, at: Setting) -> Any:
    torch.set_default_dtype(torch.float64)
    return by_torch(payload, at)


def raises_alone(payload: Any, at: Setting) -> Any:
    raw = pickle.dumps(payload)  # before the others are told
    return [pickle.loads(each) for each in by_torch(raw, at)]


def returns_none_where_it_failed(payload: Any, at: Setting) -> Any:
    try:
        raw = pickle.dumps(payload)
    except Exception:
        raw = pickle.dumps(None)
    return [pickle.loads(each) for each in by_torch(raw, at)]


def polls_for_files(payload: Any, at: Setting) -> Any:
    names = [f"{at.directory}/{'-'.join(map(str, at.members))}-{at.turn}-{rank}" for rank in range(at.size)]
    Path(names[at.rank]).write_bytes(pickle.dumps(payload))
    while not all(map(os.path.exists, names)):
        time.sleep(0.01)  # for ever, if one has died
    dist.barrier(at.group)
    return [pickle.loads(Path(name).read_bytes()) for name in names]


MISTAKEN: dict[Gather, str] = {
    drops_none: "right",
    skips_what_is_empty: "right",
    in_latin_1: "right",
    by_json: "right",
    strips_zeros: "right",
    dtype_of_first: "right",
    cut_at_64_kib: "right",
    by_size: "right",
    in_an_old_buffer: "repeatable",
    cached: "repeatable",
    files_of_one_name: "repeatable",
    in_one_place_for_all_jobs: "repeatable",
    of_all_ranks: "groups",
    to_global_rank_0: "groups",
    indexed_by_global_rank: "groups",
    removes_the_directory: "clean",
    leaves_files: "clean",
    sets_the_environment: "clean",
    seeds: "clean",
    leaks_descriptors: "clean",
    changes_the_default_dtype: "clean",
    raises_alone: "contained",
    returns_none_where_it_failed: "contained",
    polls_for_files: "survives",
}
"""By gather: the promise that it breaks."""
