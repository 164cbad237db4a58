"""Ranks that a script starts itself, by `torch.multiprocessing`: they are recorded as their parent is.

Other processes that it starts are not: those of a data loader, say, inherit all that says who their rank is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.multiprocessing as mp

from rankdrill.recording.starting import record

__all__ = ["also_in_children"]

_STARTS = "start_processes"


@dataclass(frozen=True)
class _Recorded:
    """`function`, in a process of its own, after that has begun to record itself."""

    function: Callable[..., Any]
    directory: str
    size: int
    hang_after: float | None

    def __call__(self, *args: Any) -> Any:
        record(self.directory, size=self.size, hang_after=self.hang_after)
        return self.function(*args)


def also_in_children(directory: str, size: int, hang_after: float | None = None) -> None:
    """Have what torch starts from now on, by `spawn` or `start_processes`, recorded in `directory`."""
    # Under the name of its module the package shows a function, which hides it.
    started: Any = getattr(mp, _STARTS)
    spawning = sys.modules[started.__module__]

    def start_processes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return started(_Recorded(fn, directory, size, hang_after), *args, **kwargs)

    for module in (mp, spawning):  # `spawn` calls the one beside it
        setattr(module, _STARTS, start_processes)
