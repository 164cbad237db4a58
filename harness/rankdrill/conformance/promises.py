"""What a gather can promise, each with a verdict of its own."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from rankdrill.errors import UsageError

__all__ = ["ALL_PROMISES", "Promise", "checked_promises"]


class Promise(StrEnum):
    """One promise. A gather that keeps the first may still break any other."""

    RIGHT = "right"  # with nothing broken, everybody receives what was sent, in rank order
    REPEATABLE = "repeatable"  # so does the next call, at once after this one, and beside another job
    GROUPS = "groups"  # so does a group that is not the whole world
    CLEAN = "clean"  # nothing is left, nothing of others' is gone, nothing is set otherwise
    APART = "apart"  # what a rank received is its own: nothing else changes with it
    CONTAINED = "contained"  # what fails on one rank is raised on all, and the next call works
    SURVIVES = "survives"  # when a rank dies or freezes, or a disk fails, the others raise, in time


ALL_PROMISES = frozenset(Promise)


def checked_promises(promises: Collection[str]) -> frozenset[Promise]:
    """`promises` by name; raises `UsageError` for one that is none."""
    known = {str(promise) for promise in Promise}
    for promise in promises:
        if promise not in known:
            raise UsageError(
                f"promises={sorted(map(str, promises))}: {promise!r} is none; there are {', '.join(Promise)}"
            )
    return frozenset(Promise(promise) for promise in promises)
