"""Which ranks a verdict needs: the culprits, and so many of the others that they are in the majority here, too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain, zip_longest

import psutil

__all__ = ["bearable", "needed"]

FEW = 8  # ranks that are kept all where no more are concerned, and of more than which none are needed
LEAST_OTHERS = 3  # beside a culprit: two who agree could be chance
RANKS_A_CORE = 32  # the suite runs worlds of 64 on two
BYTES_A_RANK = 128 << 20
MOST = 128  # ranks, of which the suite's largest worlds are


def bearable() -> int:
    """How many ranks this machine can bear."""
    by_cores = RANKS_A_CORE * len(os.sched_getaffinity(0))
    return max(2, min(MOST, by_cores, int(psutil.virtual_memory().available) // BYTES_A_RANK))


def needed(
    world_size: int, most: int, culprits: Sequence[int] = (), sides: Sequence[Sequence[int]] = ()
) -> tuple[int, ...]:
    """Those of `world_size` ranks, at most `most`, of which the same verdict comes.

    `sides` are the ranks that did what cannot go together. Without culprits each side is as strong as the others.
    """
    concerned = sorted({*culprits, *chain(*sides)})
    if not concerned:
        return tuple(range(min(most, FEW, world_size)))
    if len(concerned) <= min(most, FEW):
        return tuple(concerned)
    if not culprits:
        in_turn = [rank for turn in zip_longest(*sides) for rank in turn if rank is not None]
        few = min(most, max(len(sides), FEW - FEW % max(1, len(sides))))
        return tuple(sorted(list(dict.fromkeys(in_turn))[:few]))
    guilty = sorted(culprits)[: max(1, (min(most, FEW) - 1) // 2)]
    others = [rank for rank in concerned if rank not in {*culprits}] or [
        rank for rank in range(world_size) if rank not in {*culprits}
    ]
    room = min(max(LEAST_OTHERS, len(guilty) + 1), most - len(guilty))
    return tuple(sorted([*guilty, *others[:room]]))
