"""Private APIs of torch by which messages are joined; `tests/boundary/test_torch_seam.py` fails when one changes.

``batch_isend_irecv`` joins messages by ``distributed_c10d._coalescing_manager``, which keeps what is joined in
``_world.pg_coalesce_state``, for torch's own type of group alone, whose ``Backend.supports_coalescing`` says that it
can, after ``_check_p2p_op_list``. The group begins and ends by ``_start_coalescing`` and ``_end_coalescing``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

__all__ = ["WHERE_BATCHES_BEGIN", "joined_calls", "joins_calls", "where_batch_goes"]

WHERE_BATCHES_BEGIN = (dist, c10d)
"""The modules that have `batch_isend_irecv`."""


def where_batch_goes(operations: Sequence[Any]) -> tuple[Any, torch.device | None]:
    """The group of `operations`, of ``dist.P2POp`` each, and where their tensors are; nothing of what torch refuses."""
    if not isinstance(operations, list) or not operations:
        return None, None
    try:
        c10d._check_p2p_op_list(operations)
    except ValueError:
        return None, None
    return operations[0].group or dist.group.WORLD, operations[0].tensor.device


def joins_calls(group: Any, device: torch.device) -> bool:
    """Whether torch would have `group` join a batch of messages into one call, and has not for what wraps it."""
    if type(group) is not dist.ProcessGroup or device.type not in _device_types(group) or not _asks_for_the_type():
        return False
    return bool(group._get_backend(device).supports_coalescing)


@contextmanager
def joined_calls(group: Any, device: torch.device) -> Iterator[Any]:
    """Joins the calls of `group` inside it; what it gives has the handles of all together, its `works`, afterwards.

    Where one of them raises the rest are let go: torch's own leaves the group joining for ever.
    """
    try:
        with c10d._coalescing_manager(group, device, async_ops=True) as joint:
            yield joint
    except BaseException:
        if c10d._world.pg_coalesce_state.pop(group, None) is not None:
            with suppress(RuntimeError):
                group._end_coalescing(device)
        raise


@functools.cache
def _asks_for_the_type() -> bool:
    """Whether this torch joins batches of its own type of group alone: 2.6 goes by the tensors' device."""
    try:
        return "if type(group) " in inspect.getsource(c10d.batch_isend_irecv)
    except OSError:  # a torch without its source
        return True


def _device_types(group: Any) -> set[str]:
    return {device.type for device in group._device_types}
