"""Ranks that try again and again to take what another one has: a file or directory that only one can make, or a lock.

Nobody knows how often they mean to try. But where the deadline finds a rank at nothing else, that is what it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import FILE_LOCKS, Kind, Site, Step

__all__ = ["makes_alone", "tried_again"]

FEWEST = 3  # times that it has tried
_BESIDE = frozenset({Kind.CLOCK, Kind.MEMORY})  # what a rank does between two tries
_FINDS = frozenset({"lstat", "stat"})
_LOOKS = frozenset({"lstat", "open", "read", "stat"})
_REMOVES = frozenset({"rename", "replace", "rmdir", "unlink"})
_FOR_ONE_ALONE = re.compile("x|O_EXCL")


def tried_again(rank: int, views: Mapping[int, LedgerView], site: Site | None) -> Wait | None:
    """What `rank`, at `site` in no step, waits for by trying again and again to take it; None if nothing."""
    tried = _tried(views[rank])
    if tried is None or not _is_still_at(tried.step.site, site):
        return None
    holder = _holder_of(tried.step, rank, views)
    if holder is None:
        return None
    lock = tried.step.like(op=min(FILE_LOCKS), fingerprint="LOCK_EX")
    return Wait(rank, replace(tried, step=lock, state=State.WAITING), (holder,))


def _is_still_at(tried: Site | None, here: Site | None) -> bool:
    """Whether a rank that is `here` comes round to where it has tried, or is in the call of a library that tries."""
    if tried is None or here is None:
        return False
    return tried.place == here.place or come_round(*from_one_function(tried, here))


def makes_alone(step: Step) -> bool:
    """Whether it makes what is there for one alone: for others it fails, until that is removed."""
    return step.op == "mkdir" or (step.op == "open" and bool(_FOR_ONE_ALONE.search(step.fingerprint)))


def _tried(view: LedgerView) -> Record | None:
    """The newest of the tries that are all it did last: of one path, which it may look at, too, in between."""
    last: Record | None = None
    times, found_there = 0, False
    for record in (record for record in reversed(view.records) if record.step.kind not in _BESIDE):
        step = record.step
        if last is not None and step.target != last.step.target:
            break
        if record.state is State.RAISED and _takes(step):
            if step.op == "mkdir" and found_there:  # it need not be new
                break
            last, times = last or record, times + 1
        elif step.op not in _LOOKS or (record.state is State.ENDED and _takes(step)):
            break
        found_there = step.op in _FINDS and record.state is State.ENDED
    return last if times >= FEWEST else None


def _takes(step: Step) -> bool:
    if step.kind not in (Kind.FILE, Kind.SHM):
        return False
    return makes_alone(step) or (step.op in FILE_LOCKS and "LOCK_UN" not in step.fingerprint)


def _holder_of(tried: Step, rank: int, views: Mapping[int, LedgerView]) -> int | None:
    """Who has taken it last, and not given it up since, as far as is known; nobody where that is not another rank, or
    where several may have it.
    """
    newest: tuple[int, int, bool] | None = None
    for other, view in views.items():
        for record in view.where(lambda kind, state: kind is tried.kind and state is State.ENDED):
            step = record.step
            if step.target != tried.target or not (_takes(step) or _gives_up(step)):
                continue
            if "LOCK_SH" in step.fingerprint:
                return None
            newest = max(newest or (-1, -1, False), (record.begin_ns, other, _takes(step)))
    if newest is None or not newest[2] or newest[1] == rank:
        return None
    return newest[1]


def _gives_up(step: Step) -> bool:
    return step.op in _REMOVES or (step.op in FILE_LOCKS and "LOCK_UN" in step.fingerprint)
