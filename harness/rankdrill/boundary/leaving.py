"""Leaving a group is a step of the rank that leaves: others may still be connecting to it, and fail because of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from rankdrill.boundary.callsites import call_site
from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch
from rankdrill.ledger import spell_members
from rankdrill.step import LEAVES_GROUP, Kind, Step

__all__ = ["leaving_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test


def leaving_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes each ``destroy_process_group`` of a group that has this rank a step of `boundary`."""
    for module in (dist, distributed_c10d):
        yield Patch(module, LEAVES_GROUP, functools.partial(_noted, boundary))


def _noted(boundary: Boundary, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def destroy_process_group(group: Any = None) -> None:
        left = dist.group.WORLD if group is None else group
        if not boundary.open or not isinstance(left, DrilledGroup):
            original(group)
            return
        members = spell_members(left.global_ranks)[0]
        step = Step(Kind.GROUP, LEAVES_GROUP, left.label, members, site=call_site())
        boundary.cross(step, {}, lambda _call: original(group))

    return destroy_process_group
