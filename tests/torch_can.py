"""What this torch can do on CPUs, found by looking and trying; a test that needs what it cannot is skipped, saying why.

Torch 2.6, the oldest that is supported, can do none of these.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from importlib.util import find_spec
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

__all__ = ["Can", "can", "end_group", "needs"]


class Can(Enum):
    """Each with what is said where it cannot."""

    REDUCE_SCATTER = "gloo has no reduce_scatter"
    ALL_TO_ALL = "gloo has no all_to_all of lists"
    CHANGE_TIMEOUTS = "gloo keeps the timeout that a group was made with"
    CONNECT_LATER = "gloo connects all ranks at the start"
    ABORT = "a group cannot be aborted"
    SAY_WHO_WAITS = "the options of all_reduce do not say whether torch waits for it"
    LET_GROUPS_GO = "a group that goes holds the GIL, and may wait for a thread that wants it"
    SHARD = "fully_shard asks the CPU's stream for events, which has none"
    STAND_ON_META = "collectives have no kernels for tensors on meta, which stands for a device"
    JOIN_FAKES = "the fake backend has no name, and joins no calls"
    MEET_AT_STORES = "a store has no barrier"
    SAVE_BESIDE = "a checkpoint is not saved by a function of its own in a thread"
    PIPELINE = "a pipeline waits for one handle of each batch and drops the others, and gloo those messages"


def needs(*what: Can) -> None:
    """Skip the test that is running where this torch cannot."""
    for each in what:
        if not can(each):
            pytest.skip(f"torch {torch.__version__}: {each.value}")


@functools.cache
def can(what: Can) -> bool:
    """Whether this torch can."""
    return _FOUND_OUT[what]()


_KEPT: list[Any] = []


def end_group() -> None:
    """Destroy the default group, of a process in which no rank of rankdrill's runs; it takes its threads along later
    where it might wait for them for ever.
    """
    group: Any = dist.group.WORLD
    if not can(Can.LET_GROUPS_GO):
        _KEPT.extend(group._get_backend(device) for device in group._device_types)
    dist.destroy_process_group()


def _takes(method: str, *args: Any) -> bool:
    alone: Any = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=30))  # type: ignore[attr-defined]
    try:
        getattr(alone, method)(*args).wait()
    except RuntimeError as error:
        if "does not support" in str(error):
            return False
        raise
    return True


def _fakes_have_names() -> bool:
    from torch._C._distributed_c10d import FakeProcessGroup

    try:
        getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)(0, 1).name()
    except RuntimeError:
        return False
    return True


def _pipelines_wait_for_all() -> bool:
    from torch.distributed.pipelining import schedules

    return ".pop()" not in inspect.getsource(schedules._batch_p2p)


def _lists() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return [torch.zeros(1)], [torch.ones(1)]


_FOUND_OUT: dict[Can, Callable[[], bool]] = {
    Can.REDUCE_SCATTER: lambda: _takes("reduce_scatter", [torch.zeros(1)], [[torch.ones(1)]]),
    Can.ALL_TO_ALL: lambda: _takes("alltoall", *_lists()),
    Can.CHANGE_TIMEOUTS: lambda: hasattr(dist.ProcessGroup, "set_timeout"),
    Can.CONNECT_LATER: lambda: "lazy_init" in str(dist.ProcessGroupGloo.create_device.__doc__),
    Can.ABORT: lambda: hasattr(dist.ProcessGroup, "abort"),
    Can.SAY_WHO_WAITS: lambda: hasattr(dist.AllreduceOptions(), "asyncOp"),
    # There is no way to find out but by hanging: 2.6 does in one of 50 groups, 2.8 in none of 3000.
    Can.LET_GROUPS_GO: lambda: torch.__version__ >= "2.8",
    Can.SHARD: lambda: hasattr(torch.cpu.Stream, "record_event"),
    Can.STAND_ON_META: lambda: torch.ops.c10d.allreduce_.default.has_kernel_for_dispatch_key("Meta"),  # type: ignore[arg-type]
    Can.JOIN_FAKES: _fakes_have_names,
    Can.MEET_AT_STORES: lambda: hasattr(PrefixStore, "barrier"),
    Can.PIPELINE: _pipelines_wait_for_all,
    Can.SAVE_BESIDE: lambda: find_spec("torch.distributed.checkpoint._async_thread_executor") is not None,
}
