"""torch's own gathers of objects, and the hand-written ones."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from benchmarks.gathering.payloads import MB, as_flat
from benchmarks.gathering.setting import ORIGINAL, TORCH, Call, Setting, Way
from benchmarks.originals import configs, files, fixed_buffer, padded, shared_memory, tensors, workspace


def _objects(setting: Setting, value: Any) -> Call:
    def call() -> list[Any]:
        values: list[Any] = [None] * setting.size
        dist.all_gather_object(values, value)
        return values

    return call


def _to_one(setting: Setting, value: Any) -> Call:
    def call() -> list[Any]:
        values: list[Any] | None = None if setting.rank else [None] * setting.size
        dist.gather_object(value, values, dst=0)
        return values or []

    return call


def _padded(setting: Setting, value: Any) -> Call:
    return lambda: padded.all_gather(value)


def _files(setting: Setting, value: Any) -> Call:
    return lambda: files.all_gather(value, setting.directory)


def _fixed_buffer(setting: Setting, value: Any) -> Call:
    buffer = fixed_buffer.new_buffer(setting.max_size)
    return lambda: fixed_buffer.all_gather_list(value, buffer, setting.max_size)


def _shared_memory(setting: Setting, value: Any) -> Call:
    return lambda: shared_memory.all_gather(value, setting.prefix)


def _workspace(setting: Setting, value: Any) -> Call:
    def call() -> list[Any]:
        pairs = workspace.gather_first({"rank": setting.rank}, value, setting.directory)
        return [weights for _, weights in pairs]

    return call


def _configs(setting: Setting, value: Any) -> Call:
    return lambda: [config["state"] for config in configs.gather_first({"state": value}, setting.prefix)]


def _tensors(setting: Setting, value: Any) -> Call:
    tensor = as_flat(value)
    return lambda: list(tensors.gather_first(tensor, setting.prefix))


WAYS = (
    Way("torch-objects", "torch all_gather_object", TORCH, _objects, baseline=True),
    Way("torch-to-one", "torch gather_object", TORCH, _to_one, first_only=True),
    Way("original-padded", "padded", ORIGINAL, _padded),
    Way("original-files", "files", ORIGINAL, _files),
    Way("original-fixed", "fixed buffer", ORIGINAL, _fixed_buffer, upto=MB),
    Way("original-shm", "shared memory", ORIGINAL, _shared_memory),
    Way("original-configs", "configs by segments, to first", ORIGINAL, _configs, first_only=True),
    Way(
        "original-tensors",
        "tensors by segments, to first",
        ORIGINAL,
        _tensors,
        first_only=True,
        flat=True,
        equal_only=True,
    ),
    Way(
        "original-workspace",
        "workspace by files, to first",
        ORIGINAL,
        _workspace,
        first_only=True,
        pause=lambda: dist.barrier(),  # or a rank writes the next file while the first one reads
    ),
)
