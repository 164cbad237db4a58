"""Real runs on gloo whose ranks dump their flight recorders in the middle of a hang, which then dissolves.

A rank that is late holds back until all the others are in the call and have dumped, dumps itself, then comes: so dumps
are those of a hang, and the world ends as any other. What is private of torch is here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

__all__ = ["PREFIX", "is_there", "late_in_a_group", "late_rank", "well"]

PREFIX = "rank_"
_LOOK_S = 0.005
ROUNDS = 3


def is_there() -> bool:
    """Whether this torch records gloo's calls."""
    return hasattr(_distributed_c10d, "_dump_fr_trace")


def well(directory: str) -> None:
    """On a rank: rounds, and a dump when all have ended."""
    _rounds()
    _dump(Path(directory))


def late_rank(directory: str, late: int) -> None:
    """On a rank: rounds, then a call to which `late` comes when the others' dumps are there."""
    _rounds()
    _meet(Path(directory), late, None, list(range(dist.get_world_size())))


def late_in_a_group(directory: str, late: int, members: list[int]) -> None:
    """The same of a call on a group of `members`, while the others wait in one of all ranks."""
    group = dist.new_group(members)
    ones = torch.ones(4)
    if dist.get_rank() in members:
        dist.all_reduce(ones, group=group)
    _rounds()
    here = Path(directory)
    if dist.get_rank() in members:
        _meet(here, late, group, list(range(dist.get_world_size())))
        dist.barrier()
    else:
        work = dist.barrier(async_op=True)
        _dump(here)
        work.wait()


def _rounds() -> None:
    for _ in range(ROUNDS):
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(2), 0)


def _meet(here: Path, late: int, group: dist.ProcessGroup | None, all_ranks: list[int]) -> None:
    if dist.get_rank() == late:
        while not all((here / f"{PREFIX}{rank}").exists() for rank in all_ranks if rank != late):
            time.sleep(_LOOK_S)
        _dump(here)
        dist.all_reduce(torch.ones(8), group=group)
    else:
        work = dist.all_reduce(torch.ones(8), group=group, async_op=True)
        _dump(here)
        work.wait()


def _dump(here: Path) -> None:
    rank = dist.get_rank()
    recorder: Any = _distributed_c10d  # torch has no stubs of it
    as_json, as_pickle = recorder._dump_fr_trace_json(), recorder._dump_fr_trace()
    for name, raw in ((f"json_{rank}.json", as_json), (f"{PREFIX}{rank}", as_pickle)):
        part = here / f".{name}.part"
        part.write_bytes(raw)
        part.replace(here / name)
