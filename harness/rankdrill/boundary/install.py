"""Puts every boundary in place in this process, and takes it away again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rankdrill.boundary.collectives import install_collectives
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch, apply

__all__ = ["install"]


def install(boundary: Boundary) -> Callable[[], None]:
    """Make calls of this process steps of `boundary`; returns a function that undoes it."""
    undo_groups = install_collectives(boundary)
    undo_patches = apply(_patches(boundary))

    def undo() -> None:
        undo_patches()
        undo_groups()

    return undo


def _patches(boundary: Boundary) -> Iterable[Patch]:
    return ()
