"""A bound on memory, for what must refuse a file before it asks for as much as the file says."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

__all__ = ["little_memory"]


@contextmanager
def little_memory(room_bytes: int) -> Iterator[None]:
    """Let this process have at most `room_bytes` more address space than it has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + room_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
