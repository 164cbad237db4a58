"""One tensor for what several ranks give: each part overwrites the one before, and a single one is left.

``[torch.zeros(1)] * world_size`` makes such a list, and no backend says a word: in public code it stands in front of
many an ``all_gather``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.regions import extent_of

__all__ = ["TAKING_APART", "shared_output"]

TAKING_APART = frozenset({"all_gather", "all_gather_coalesced", "all_to_all", "gather"})
"""The ops that fill a tensor for each rank."""


def shared_output(args: dict[str, Any]) -> tuple[torch.Tensor, int] | None:
    """The first output that is there for several ranks, and for how many; None where each has its own.

    Views of one memory that overlap elsewhere than in their first element are not looked for.
    """
    places: dict[tuple[Any, int], list[torch.Tensor]] = {}
    for tensor in flatten(args.get("outputs")):
        extent = extent_of(tensor)
        if extent is not None:
            places.setdefault((tensor.device, extent.first), []).append(tensor)
    shared: Sequence[torch.Tensor] = next((each for each in places.values() if len(each) > 1), ())
    return (shared[0], len(shared)) if shared else None
