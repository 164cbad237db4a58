"""NFSWorkspace as its contract has it used: reading is each rank's own business, so the caller agrees on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from rankdrill import gathers
from rankdrill.conformance.adapter import Adapter, Setting
from rankdrill.errors import RankFailure, StorageError
from rankdrill.step import Kind

__all__ = ["NFS_WORKSPACE"]

T = TypeVar("T")


def _exchange(payload: Any, setting: Setting) -> Any:
    ranks = range(setting.size)
    with gathers.NFSWorkspace(setting.directory, meeting=True, timeout=setting.timeout) as workspace:
        workspace.write_configs_and_weights({"payload": payload}, {"weight": torch.arange(4)})
        # Until all have read, nobody may leave: what a rank wrote goes with its workspace.
        pairs = _agreed(lambda: [workspace.read_configs_and_weights_from_rank(rank) for rank in ranks], setting)
    return [config["payload"] for config, _ in pairs]


def _agreed(action: Callable[[], T], setting: Setting) -> T:
    """Do `action` and tell the others how it went; raise on all ranks if it failed on one."""
    problem, done = None, []
    try:
        done.append(action())
    except Exception as error:  # the others must hear of it, whatever it is
        problem = f"{type(error).__name__}: {error}"
    problems: list[str | None] = [None] * setting.size
    # A rank may have waited for a file for as long as `timeout`; the others must wait longer than that for it.
    gathers.all_gather_object(problems, problem, timeout=3 * setting.timeout)
    failures = tuple(RankFailure(rank, cause) for rank, cause in enumerate(problems) if cause)
    if failures:
        raise StorageError("NFSWorkspace", failures)
    return done[0]


NFS_WORKSPACE = Adapter(
    "NFSWorkspace",
    _exchange,
    kinds=frozenset({Kind.COLLECTIVE, Kind.FILE, Kind.OBJECT, Kind.MEMORY, Kind.CLOCK}),
)
