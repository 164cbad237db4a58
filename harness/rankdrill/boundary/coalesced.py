"""Messages issued in one batch: a backend that joins them into one call still does so for a group that is wrapped.

``batch_isend_irecv`` asks torch's own type of group alone whether its backend can. One that cannot issues them one by
one; over NCCL two ranks that send to each other would then wait for each other, each behind its own send.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rankdrill.boundary import batches_seam
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.work import TrackedWork
from rankdrill.step import BATCH

__all__ = ["coalescing_patches"]


def coalescing_patches() -> Iterable[Patch]:
    """Have batches joined where torch would without the wrapper."""

    def joined(one_by_one: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(one_by_one)
        def wrapper(p2p_op_list: Sequence[Any]) -> Any:  # under that name it is no caller: see layers.py
            __tracebackhide__ = True
            group, device = batches_seam.where_batch_goes(p2p_op_list)
            if (
                device is None
                or not isinstance(group, DrilledGroup)
                or not batches_seam.joins_calls(group.inner, device)
            ):
                return one_by_one(p2p_op_list)
            with batches_seam.joined_calls(group, device) as joint:
                issued = one_by_one(p2p_op_list)
            for work in issued:  # NCCL's have no handles of their own
                if isinstance(work, TrackedWork):
                    work.settle()
            return joint.works

        return wrapper

    for module in batches_seam.WHERE_BATCHES_BEGIN:
        yield Patch(module, BATCH, joined)
