"""What ranks must agree on that meet in a store's barrier: for how many they wait there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from rankdrill.boundary.collectives import DrilledGroup
from rankdrill.boundary.crossing import Boundary
from rankdrill.step import Contract, Meeting, Step, StoreKey

__all__ = ["of_all", "post"]


def of_all(key: StoreKey, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """The fingerprint of a call of ``barrier`` for `key`."""
    wanted = args[1] if len(args) > 1 else kwargs.get("world_size")
    return str(Meeting(Meeting.ALL, wanted if isinstance(wanted, int) else 0, key.store))


def post(step: Step, boundary: Boundary) -> None:
    """Have it compared with what the others wait for who come there: the store itself goes by who comes last."""
    __tracebackhide__ = True
    whole = dist.group.WORLD
    wanted = Meeting.of(step).wanted
    if boundary.watch is None or not isinstance(whole, DrilledGroup) or not wanted:
        return
    contract = Contract(step.op, sizes=(wanted,), shown=f"{wanted} ranks")
    place, times = boundary.met.come(step.digest)  # whoever comes again is let through, whatever it waits for
    posted = step.like(sequence=times, digest=contract.digest, contract=contract)
    boundary.watch.enter(place, whole.global_ranks, whole.place, posted)
