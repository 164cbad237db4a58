"""Puts every boundary in place in this process, and takes it away again."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rankdrill.boundary.backward import backward_patches
from rankdrill.boundary.coalesced import coalescing_patches
from rankdrill.boundary.collectives import install_collectives
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.early import Early, early_names, early_patches
from rankdrill.boundary.ending import ending_patches
from rankdrill.boundary.files import file_patches
from rankdrill.boundary.forward_work import forward_work_patches
from rankdrill.boundary.joined_stores import joining_patches
from rankdrill.boundary.leaving import leaving_patches
from rankdrill.boundary.memory import memory_patches
from rankdrill.boundary.new_groups import install_new_groups
from rankdrill.boundary.objects import object_patches
from rankdrill.boundary.patch import Patch, apply
from rankdrill.boundary.saving import saving_patches
from rankdrill.boundary.shm import shm_patches
from rankdrill.boundary.stores import store_patches
from rankdrill.boundary.submitted import submission_patches
from rankdrill.boundary.territory import Territory

__all__ = ["Prepared", "install", "names_before"]


def names_before() -> tuple[Early, ...]:
    """Second names that modules imported so far have for what `install` replaces; to be asked before that."""
    return tuple(early_names(_patches(Boundary(), Territory(()))))


def install(
    boundary: Boundary,
    *,
    ignored: Sequence[str | os.PathLike[str]] = (),
    between_ranks_only: bool = False,
) -> Callable[[], None]:
    """Make calls of this process steps of `boundary`; returns a function that undoes it.

    With `between_ranks_only` these are collectives, messages, groups and the calls of stores, and how the process ends.

    Files below the directories `ignored` are no steps, nor is what forked children do. A function that a module has
    imported by its own name (``from os import rename``) before this is not seen; classes of shared memory are.
    """
    _let_forks_go(boundary)
    chosen = _patches_between_ranks if between_ranks_only else _patches
    return _put_in_place(boundary, list(chosen(boundary, Territory(ignored))), ())


class Prepared:
    """Boundaries in place in a process that takes no steps, for each of its forks to take as its own.

    A rank that put them in place itself would write to a thousand pages that it shares with the others until then.
    Names that modules imported so far have for what is replaced (``from os import rename``) are replaced too.
    """

    def __init__(self) -> None:
        self._boundary, self._territory = Boundary(), Territory()
        patches = list(_patches(self._boundary, self._territory))
        self._withdraw = _put_in_place(self._boundary, patches, tuple(early_names(patches)))

    def withdraw(self) -> None:
        """Put the originals back: modules that are imported now are to find these."""
        self._withdraw()

    def take(self, *behind: Any, ignored: Sequence[str | os.PathLike[str]]) -> Boundary:
        """In a fork: the boundary, from now on with what is `behind` it, as `Boundary` says; `ignored` as `install`."""
        self._boundary.stand_before(*behind)
        self._territory.ignore(ignored)
        _let_forks_go(self._boundary)
        return self._boundary


def _let_forks_go(boundary: Boundary) -> None:
    boundary_of_this_process = weakref.ref(boundary)

    def forked() -> None:
        inherited = boundary_of_this_process()
        if inherited is not None:
            inherited.abandon()

    os.register_at_fork(after_in_child=forked)


def _put_in_place(boundary: Boundary, patches: Sequence[Patch], early: Sequence[Early]) -> Callable[[], None]:
    undo_groups, undo_new_groups = install_collectives(boundary), install_new_groups(boundary)
    undo_patches = apply([*patches, *early_patches(early, patches)])

    def undo() -> None:
        undo_patches()
        undo_new_groups()
        undo_groups()

    return undo


def _patches_between_ranks(boundary: Boundary, territory: Territory) -> Iterable[Patch]:
    yield from store_patches(boundary, territory)
    yield from joining_patches(boundary)
    yield from backward_patches(boundary)
    yield from coalescing_patches()
    yield from leaving_patches(boundary)
    yield from ending_patches(boundary)
    yield from submission_patches(boundary)
    yield from forward_work_patches()


def _patches(boundary: Boundary, territory: Territory) -> Iterable[Patch]:
    yield from file_patches(boundary, territory)
    yield from store_patches(boundary, territory)
    yield from joining_patches(boundary)
    yield from shm_patches(boundary)
    yield from object_patches(boundary)
    yield from saving_patches(boundary)
    yield from memory_patches(boundary)
    yield from backward_patches(boundary)
    yield from coalescing_patches()
    yield from leaving_patches(boundary)
    yield from ending_patches(boundary)
    yield from submission_patches(boundary)
    yield from forward_work_patches()
