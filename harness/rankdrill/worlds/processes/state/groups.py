"""Process groups that a body leaves, which torch counts when it names the next ones."""

from __future__ import annotations

from collections.abc import Iterator

import torch.distributed as dist

from rankdrill.boundary.torch_seam import group_names

__all__ = ["Groups"]


class Groups:
    """Which groups there were at one moment; `left()` says of what came since what the next body would meet, in words.

    A group of all ranks does no harm. With one of some ranks they do not hold equally many from then on, and with
    ``use_local_synchronization`` torch derives a group's name from how many there are: ranks would look for each other
    under different names. Where such a group is destroyed its name is given again, and ranks find what is left of
    the first in the store (torch 2.13).
    """

    def __init__(self) -> None:
        self._before = set(group_names().values())
        self._alone = _made_alone()

    def left(self) -> Iterator[str]:
        """Each group, of those made since, that a fresh rank would not have."""
        for group, name in group_names().items():
            if name not in self._before and group.size() < dist.get_world_size():
                yield f"left a process group of {group.size()} of {dist.get_world_size()} ranks"
        if _made_alone() != self._alone:
            yield "made a process group with use_local_synchronization, whose name torch gives again"


def _made_alone() -> int:
    return getattr(dist.group.WORLD, "groups_made_alone", 0)
