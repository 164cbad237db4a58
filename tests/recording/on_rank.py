"""On a process of a job: what a script does around its own work."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import rankdrill
import rankdrill.recording

__all__ = ["play"]


def play(
    body: Callable[..., Any],
    rank: int,
    size: int,
    directory: str,
    place: str,
    args: tuple[Any, ...],
    first: Callable[..., Any] | None,
) -> None:
    """Record, meet, and do `body`; `first` is done in place of the recording."""
    torch.set_num_threads(1)
    output = os.open(Path(place) / f"{rank}.out", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    if first is None:
        rankdrill.record(directory)
    else:
        first(rank, directory)
    store = dist.FileStore(str(Path(place) / "store"), size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    try:
        body(rank, *args)
    except SystemExit:
        raise
    except BaseException as error:
        # As of a script: multiprocessing would only print it.
        sys.excepthook(type(error), error, error.__traceback__)
        traceback.print_exc()
        sys.exit(1)
