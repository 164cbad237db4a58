"""Reading much at once without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collector"]


@contextmanager
def no_collector() -> Iterator[None]:
    """Without the garbage collector, which goes through millions of objects that are in no cycle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
