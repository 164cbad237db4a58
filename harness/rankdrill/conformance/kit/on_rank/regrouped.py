"""Whether ranks can still make a group together.

Where only members take part, torch names a group after how many it knows of, and ranks that know of another number
wait for one another under two names (torch 2.13, `use_local_synchronization`). A gather that has torch make groups for
some ranks' calls brings that about.
"""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

__all__ = ["regrouped"]


def regrouped(seconds: float) -> tuple[str, ...]:
    """Make a group of all ranks, and meet in it, within so many `seconds`; returns what comes in the way, in a line."""
    try:
        group = dist.new_group(timeout=timedelta(seconds=seconds), use_local_synchronization=True)
        dist.barrier(group)
    except Exception as error:  # of a store that has waited long enough, mostly
        return (f"all ranks make a new group, and do not meet in it: {type(error).__name__}: {_first_line(error)}",)
    dist.destroy_process_group(group)
    return ()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
