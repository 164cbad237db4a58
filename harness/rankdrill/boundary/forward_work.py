"""The handle that DistributedDataParallel gives its reducer in each forward pass under `join`, for C++ to wait for.

C++ holds no more of it than what is C++ in it: once Python lets go of the rest, waiting for it waits for ever. So it is
kept as long as the reducer has it. Private in torch is ``Reducer._set_forward_pass_work_handle``, by which it is given;
`tests/boundary/test_torch_seam.py` fails when that changes.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist

from rankdrill.boundary.patch import Patch

__all__ = ["forward_work_patches"]

_GIVES = "_set_forward_pass_work_handle"


def forward_work_patches() -> Iterator[Patch]:
    """What keeps the handles, each until its reducer has the next one."""
    reducer = getattr(dist, "Reducer", None)
    if hasattr(reducer, _GIVES):
        yield Patch(reducer, _GIVES, _kept)


def _kept(original: Callable[[Any, dist.Work, bool], None]) -> Callable[[Any, dist.Work, bool], None]:
    given: weakref.WeakKeyDictionary[Any, dist.Work] = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def give(self: Any, work: dist.Work, use_static_world_size: bool) -> None:
        original(self, work, use_static_world_size)
        given[self] = work

    return give
