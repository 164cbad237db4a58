"""Whose files are steps: those of the drilled code, not Python's, the system's or rankdrill's own."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any

from rankdrill.step import Kind

__all__ = ["SHM_ROOT", "Territory"]

SHM_ROOT = "/dev/shm/"
_SYSTEM_ROOTS = ("/proc/", "/sys/", "/dev/")
_SOURCES = (".py", ".pyc", ".pyi", ".so")
# Asked once, before ranks are forked: each question copies all of Python's build configuration, 0.5 ms in a fork.
_INSTALLED = tuple(os.path.abspath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_FDS = "/proc/self/fd/"
_MEMFD = "/memfd:"  # how the kernel calls what `os.memfd_create` made
_DELETED = " (deleted)"


class Territory:
    """Says of a path, or of a descriptor, whether using it is a step, and of which kind.

    `ignored` are directories whose files are no steps: a world's own.
    """

    def __init__(self, ignored: Sequence[str | os.PathLike[str]] = ()) -> None:
        self.ignore(ignored)
        # On the way to installed packages: importing one of them looks at these again and again.
        self._above = frozenset(above for root in _INSTALLED for above in _above(root))

    def ignore(self, directories: Sequence[str | os.PathLike[str]]) -> None:
        """Have these be the ones whose files are no steps."""
        self._own = tuple(os.path.abspath(os.fspath(path)) + os.sep for path in directories)
        self._ignored = (*_SYSTEM_ROOTS, *(root + os.sep for root in _INSTALLED), *self._own)

    def kind(self, path: str) -> Kind | None:
        """`Kind.FILE`, or `Kind.SHM` for what lies in memory, or None where `path` is nobody's business."""
        kind = self.kind_of_lock(path)
        if kind is Kind.FILE and (path.endswith(_SOURCES) or "/__pycache__" in path or path in self._above):
            return None
        return kind

    def kind_of_lock(self, path: str) -> Kind | None:
        """The same for a lock: that of a source is somebody's, whom Python does not take for reading it."""
        if path.startswith((SHM_ROOT, _MEMFD)):
            return Kind.SHM
        return None if path.startswith(self._ignored) else Kind.FILE

    def is_own(self, path: str) -> bool:
        """Whether `path` is one of the world's own files."""
        return path.startswith(self._own)

    def locate(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The absolute path that `path` means, or None where that cannot be said."""
        try:
            if isinstance(path, int):
                return self._of_descriptor(path)
            text = os.fsdecode(path)
            if dir_fd is not None and not os.path.isabs(text):
                base = self._of_descriptor(dir_fd)
                return None if base is None else os.path.normpath(os.path.join(base, text))
            return os.path.abspath(text)
        except (TypeError, ValueError, OSError):  # the real call says what is wrong with it
            return None

    def _of_descriptor(self, fd: int) -> str | None:
        link = os.readlink(f"{_FDS}{fd}")
        return link.removesuffix(_DELETED) if link.startswith("/") else None


def _above(path: str) -> Iterator[str]:
    while path != os.path.dirname(path):
        yield path
        path = os.path.dirname(path)
    yield path
