"""What can only be noticed: a rank in which it changed is not used for another test."""

from __future__ import annotations

import builtins
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

__all__ = ["Watch"]

_OWNERS: tuple[Any, ...] = (
    builtins,
    os,
    random,
    time,
    threading,
    torch,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.functional,
    torch.optim.Optimizer,
    torch.utils.data.DataLoader,
    dist,
    distributed_c10d,
    dist.ProcessGroup,
)
"""Where tests patch by hand, and what every later test would meet."""

_FDS = Path("/proc/self/fd")
_NOT_LEFT = ("/dev/", "/proc/", "/memfd:")
_TORCH = str(Path(torch.__file__).parent)
# Files that torch and Python open once, when first needed, and keep.
_KEPT = (".so", ".py", ".pyc", ".zip")


class Watch:
    """What was there at one moment; `left()` says what has come or changed since, in words."""

    def __init__(self) -> None:
        self._modules = tuple(sys.modules.values())
        self._attributes = [tuple(vars(owner).values()) for owner in _OWNERS]
        self._threads = frozenset(threading.enumerate())
        self._descriptors = _descriptors()

    def left(self) -> Iterator[str]:
        """Each thing that a fresh rank would not have."""
        if tuple(sys.modules.values())[: len(self._modules)] != self._modules:
            yield "changed sys.modules"
        for owner, before in zip(_OWNERS, self._attributes, strict=True):
            if tuple(vars(owner).values())[: len(before)] != before:
                yield from self._changed(owner, before)
        for thread in threading.enumerate():
            if thread not in self._threads:
                yield f"left thread {thread.name!r}"
        if _has_children():
            yield "left a child process"
        if _descriptors() != self._descriptors:
            yield from self._opened()

    def _changed(self, owner: Any, before: tuple[Any, ...]) -> Iterator[str]:
        """What of `owner` is another object than it was; numbers and the like change in normal use."""
        # What came since stands behind these, and hides nothing.
        for (name, value), was in zip(vars(owner).items(), before, strict=False):
            if value is not was and callable(value) and not name.startswith("__") and not _by_torch(value):
                yield f"changed {getattr(owner, '__name__', owner)}.{name}"

    def _opened(self) -> Iterator[str]:
        for fd in sorted(_descriptors() - self._descriptors):
            try:
                target = os.readlink(_FDS / str(fd))
            except OSError:  # the one that the listing itself used
                continue
            # Pipes and sockets may be gloo's, which opens them when it needs them.
            if target.startswith("/") and not target.startswith(_NOT_LEFT) and not target.endswith(_KEPT):
                yield f"left {target} open"


def _by_torch(value: Any) -> bool:
    """Whether torch's own code took the place of what was there, as its compiler does when it is first imported."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _descriptors() -> frozenset[int]:
    return frozenset(map(int, os.listdir(_FDS)))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
