"""Backward passes: who runs one is known, and what a hook of one issues is under way after it, too.

What works on a GPU's tensors the engine calls in a thread of its own, for each GPU: DDP's reducer, hooks.

Torch gives each pass its own stack of modes, and drops it at the end: the mode that watches accesses to tensors, put on
in a hook, would be off again where the program goes on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from rankdrill.boundary import torch_seam
from rankdrill.boundary.callsites import passes
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch

__all__ = ["backward_patches"]


def backward_patches(boundary: Boundary) -> Iterable[Patch]:
    """Have accesses watched after a pass in which calls were issued that are still under way."""

    def around(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def run_and_watch(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            passes.append(sys._getframe())  # in no variable of this function's, which would hold itself then
            try:
                return run(*args, **kwargs)
            finally:
                passes.remove(sys._getframe())
                handles = boundary.handles
                if handles is not None and handles.under_way:
                    handles.watch.begin()

        return run_and_watch

    yield Patch(*torch_seam.WHERE_PASSES_BEGIN, around)
