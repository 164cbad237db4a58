"""Shared-memory segments of `multiprocessing` become steps. Files in /dev/shm are steps too: see files.py."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.gate import Call
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.territory import SHM_ROOT
from rankdrill.step import Kind, Step

__all__ = ["shm_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

_CREATE_FLAGS = os.O_CREAT | os.O_EXCL | os.O_RDWR


def shm_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes segments steps of `boundary`; methods of the class, so that every name of it is covered."""
    yield Patch(SharedMemory, "__init__", _making(boundary))
    for name in ("close", "unlink"):
        yield Patch(SharedMemory, name, _ending(name, boundary))


def _making(boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def init(self: Any, name: str | None = None, create: bool = False, size: int = 0, **more: Any) -> None:
            if not boundary.open or (name is None and not create):
                original(self, name, create, size, **more)
                return
            # Named here where it would be named inside: the step must say which segment it makes.
            known = name if name is not None else shared_memory._make_filename()  # type: ignore[attr-defined]
            known = known.removeprefix("/")

            def real(call: Call) -> None:
                try:
                    original(self, known, create, size, **more)
                except FileExistsError:
                    if name is not None:
                        raise
                    original(self, None, create, size, **more)  # as it would: try other names

            step = Step(Kind.SHM, "create" if create else "attach", SHM_ROOT + known, nbytes=size)
            boundary.cross(step, {"path": known, "flags": _CREATE_FLAGS if create else os.O_RDWR}, real)

        return init

    return make


def _ending(op: str, boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        @functools.wraps(original)
        def end(self: Any) -> None:
            # `__del__` closes what is closed already: no step.
            if not boundary.open or (op == "close" and self._mmap is None):
                original(self)
                return
            path = SHM_ROOT + str(self._name).removeprefix("/")
            boundary.cross(Step(Kind.SHM, op, path), {"path": path}, lambda call: original(self))

        return end

    return make
