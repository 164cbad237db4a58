"""rankdrill's own gathers."""

from __future__ import annotations

from typing import Any

from benchmarks.gathering.payloads import MB, as_flat
from benchmarks.gathering.setting import OURS, Call, Setting, Way

from rankdrill import gathers

SHM = "all_gather_shm"


def _padded(setting: Setting, value: Any) -> Call:
    return lambda: gathers.all_gather(value, force_cpu=True)


def _by_switch(setting: Setting, value: Any) -> Call:
    return lambda: gathers.all_gather(value, force_filesys=True, filesys_save_dir=setting.directory)


def _files(setting: Setting, value: Any) -> Call:
    return lambda: gathers.all_gather_via_filesys(value, setting.directory)


def _fixed_buffer(setting: Setting, value: Any) -> Call:
    return lambda: gathers.all_gather_list(value, max_size=setting.max_size)


def _objects(setting: Setting, value: Any) -> Call:
    def call() -> list[Any]:
        values: list[Any] = [None] * setting.size
        gathers.all_gather_object(values, value)
        return values

    return call


def _to_one(setting: Setting, value: Any) -> Call:
    def call() -> list[Any]:
        values: list[Any] | None = None if setting.rank else [None] * setting.size
        gathers.gather_object(value, values, dst=0)
        return values or []

    return call


def _shared_memory(setting: Setting, value: Any) -> Call:
    gather = getattr(gathers, SHM)
    return lambda: list(gather(value))


def _workspace(setting: Setting, value: Any) -> Call:
    workspace = gathers.NFSWorkspace(setting.directory, meeting=True)

    def call() -> list[Any]:
        workspace.write_configs_and_weights({"rank": setting.rank}, value)
        if setting.rank:
            return []
        return [workspace.read_configs_and_weights_from_rank(rank)[1] for rank in setting.ranks]

    return call


def _configs(setting: Setting, value: Any, directory: str | None = None) -> Call:
    def call() -> list[Any]:
        with gathers.get_configs_parallel({"state": value}, setting.ranks, None, workspace_path=directory) as configs:
            return [config["state"] for config in configs]

    return call


def _configs_by_workspace(setting: Setting, value: Any) -> Call:
    return _configs(setting, value, setting.directory)


def _tensors(setting: Setting, value: Any) -> Call:
    tensor = as_flat(value)

    def call() -> list[Any]:
        with gathers.get_tensors_parallel(tensor, setting.ranks) as tensors:
            return list(tensors)

    return call


WAYS = (
    Way("objects", "all_gather_object", OURS, _objects, "torch-objects"),
    Way("to-one", "gather_object", OURS, _to_one, "torch-to-one", first_only=True),
    Way("padded", "all_gather, force_cpu", OURS, _padded, "original-padded"),
    Way("switch", "all_gather, force_filesys", OURS, _by_switch, "original-files"),
    Way("files", "all_gather_via_filesys", OURS, _files, "original-files"),
    Way("fixed", "all_gather_list", OURS, _fixed_buffer, "original-fixed", upto=MB),
    Way("shm", SHM, OURS, _shared_memory, "original-shm", needs=SHM),
    Way("configs", "get_configs_parallel", OURS, _configs, "original-configs", first_only=True),
    Way(
        "configs-files",
        "get_configs_parallel, workspace_path",
        OURS,
        _configs_by_workspace,
        "original-workspace",
        first_only=True,
    ),
    Way("tensors", "get_tensors_parallel", OURS, _tensors, "original-tensors", first_only=True, flat=True),
    Way("workspace", "NFSWorkspace, write and read", OURS, _workspace, "original-workspace", first_only=True),
)
