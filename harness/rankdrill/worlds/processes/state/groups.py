"""Process groups that a body leaves, which torch counts when it names the next ones."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterator
from typing import Any

import torch.distributed as dist

from rankdrill.boundary.torch_seam import group_names, held_besides_torch

__all__ = ["Groups"]


class Groups:
    """Which groups there were at one moment; `left()` says of what came since what the next body would meet, in words.

    A group of all ranks does no harm, unless something other than torch still holds it: code that makes one at its
    first call finds it made, where on fresh ranks it would not. With one of some ranks they do not hold equally many
    from then on, and with ``use_local_synchronization`` torch derives a group's name from how many there are: ranks
    would look for each other under different names. Where such a group is destroyed its name is given again, and ranks
    find what is left of the first in the store (torch 2.13).
    """

    def __init__(self) -> None:
        self._before = set(group_names().values())
        self._alone = _made_alone()

    def left(self) -> Iterator[str]:
        """Each group, of those made since, that a fresh rank would not have."""
        came = [group for group, name in group_names().items() if name not in self._before]
        every = dist.get_world_size() if came and dist.is_initialized() else 0
        for group in came:
            if not every:  # making the default group failed halfway
                yield f"left a process group of {group.size()} ranks, and no default one"
            elif group.size() < every:
                yield f"left a process group of {group.size()} of {every} ranks"
        if _made_alone() != self._alone:
            yield "made a process group with use_local_synchronization, whose name torch gives again"

    def held(self, kept: Collection[int]) -> Iterator[str]:
        """Each group of all ranks, of those made since, that something other than torch holds.

        To be asked when the body has let go of its own; what it has `kept`, by id, counts as let go.
        """
        # In this list alone: whatever else holds one of them is counted.
        came = [group for group, name in group_names().items() if name not in self._before]
        if not came:
            return
        self._before.update(group_names().values())  # nobody gets hold of them later
        if any(held_besides_torch(came, kept)):
            gc.collect()  # a circle of objects that nobody reaches holds nothing
            for place, held in enumerate(held_besides_torch(came, kept)):
                if held:
                    yield f"left a process group of all ranks{_holder(came[place])}"


def _made_alone() -> int:
    return getattr(dist.group.WORLD, "groups_made_alone", 0)


def _holder(group: Any) -> str:
    """Who holds `group`, where that is a variable of a module."""
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is group:
                return f", held by {module.__name__}.{name}"
    return " that something still holds"
