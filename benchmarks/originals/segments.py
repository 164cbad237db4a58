"""Shared-memory segments as Python offers them, without the tracker that would unlink what others still use."""

from __future__ import annotations

import sys
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory


def create(name: str, size: int) -> SharedMemory:
    return _untracked(name, create=True, size=max(size, 1))


def attach(name: str) -> SharedMemory:
    return _untracked(name, create=False, size=0)


def memory_of(segment: SharedMemory) -> memoryview:
    assert segment.buf is not None  # it is until the segment is closed
    return segment.buf


def remove(segment: SharedMemory) -> None:
    segment.close()
    if sys.version_info < (3, 13):  # unlink tells the tracker to forget the name, so it has to know it
        resource_tracker.register("/" + segment.name, "shared_memory")
    segment.unlink()


def _untracked(name: str, *, create: bool, size: int) -> SharedMemory:
    if sys.version_info >= (3, 13):
        return SharedMemory(name, create=create, size=size, track=False)
    segment = SharedMemory(name, create=create, size=size)
    # Before 3.13 every process that attaches has its tracker unlink the name at its own exit (python/cpython#82300).
    resource_tracker.unregister("/" + segment.name, "shared_memory")
    return segment
