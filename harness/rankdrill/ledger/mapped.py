"""A file's map, which C writes to without asking each time where it lies."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Protocol

from rankdrill.native import hot

__all__ = ["Mapped", "PlainMapped", "mapped"]


class Mapped(Protocol):
    """The map `memory`, to be released before that is closed: who writes to it after that is told so."""

    @property
    def memory(self) -> mmap.mmap: ...

    def release(self) -> None: ...


class PlainMapped:
    """A `Mapped` in Python, which asks each time."""

    __slots__ = ("memory",)

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory

    def release(self) -> None: ...


mapped: Callable[[mmap.mmap], Mapped] = PlainMapped if hot is None else hot.Mapped
"""One of that map, in C if there is one."""
