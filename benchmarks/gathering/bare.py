"""The same bytes moved with nothing around them: what the machine itself allows.

Receive buffers are made, and touched, before the time is taken; gloo's all_gather grows all the same, by
a copy of its own. The copy limit and the files need fresh memory, whose pages cost more than the
copying: hence the same copies into memory that is there.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.gathering.payloads import as_flat, copy
from benchmarks.gathering.setting import BARE, Call, Setting, Way

READ_BYTES = 1 << 30  # of one read call; Linux does at most 2 GiB


def _copies(setting: Setting, value: Any) -> Call:
    values = [setting.payload.make(rank) for rank in setting.ranks]
    return lambda: [copy(each) for each in values]


def _copies_into_ready(setting: Setting, value: Any) -> Call:
    values = [as_flat(setting.payload.make(rank)) for rank in setting.ranks]
    copies = [torch.ones_like(each) for each in values]
    return lambda: [into.copy_(each) for into, each in zip(copies, values, strict=True)]


def _all_gather(setting: Setting, value: Any) -> Call:
    flat = as_flat(value)
    sizes = [setting.payload.nbytes(rank) for rank in setting.ranks]
    mine = torch.zeros(max(sizes), dtype=torch.uint8)
    mine[: flat.numel()] = flat
    received = [torch.ones_like(mine) for _ in sizes]

    def call() -> list[Any]:
        dist.all_gather(received, mine)
        return [tensor[:size] for tensor, size in zip(received, sizes, strict=True)]

    return call


def _broadcasts(setting: Setting, value: Any) -> Call:
    tensors = [torch.ones(setting.payload.nbytes(rank), dtype=torch.uint8) for rank in setting.ranks]
    tensors[setting.rank] = as_flat(value)

    def call() -> list[Any]:
        works = [dist.broadcast(tensor, src, async_op=True) for src, tensor in enumerate(tensors)]
        for work in works:
            assert work is not None
            work.wait()
        return list(tensors)

    return call


def _files(setting: Setting, value: Any) -> Call:
    flat = as_flat(value)
    paths = [os.path.join(setting.directory, f"bare_{rank}") for rank in setting.ranks]

    def call() -> list[Any]:
        _write(paths[setting.rank], flat.numpy().data)
        dist.barrier()
        read = [_read(path) for path in paths]
        dist.barrier()
        os.unlink(paths[setting.rank])
        return read

    return call


def _write(path: str, rest: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def _read(path: str) -> torch.Tensor:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        read = torch.empty(os.fstat(descriptor).st_size, dtype=torch.uint8)
        rest = read.numpy().data
        while rest:
            count = os.readv(descriptor, [rest[:READ_BYTES]])
            if not count:
                raise OSError(f"{path} ends {len(rest)} bytes too early")
            rest = rest[count:]
        return read
    finally:
        os.close(descriptor)


WAYS = (
    Way("copies", "copy limit: all ranks copy everything", BARE, _copies, baseline=True),
    Way("copies-ready", "the same copies, buffers ready", BARE, _copies_into_ready, flat=True),
    Way("gloo", "gloo all_gather, buffers ready", BARE, _all_gather, flat=True),
    Way("broadcasts", "a broadcast per rank, buffers ready", BARE, _broadcasts, flat=True),
    Way("raw-files", "write and read of files", BARE, _files, flat=True),
)
