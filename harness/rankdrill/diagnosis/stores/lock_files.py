"""Ranks that try again and again to take what another one has: a file or directory that only one can make, or a lock.

Nobody knows how often they mean to try. But where the deadline finds a rank at nothing else, that is what it waits for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from rankdrill.diagnosis.calls.common_caller import come_round, from_one_function
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.step import FILE_LOCKS, Kind, Site, Step

__all__ = ["makes_alone", "tried_again"]

FEWEST = 3  # times that it has tried
_KINDS = frozenset({Kind.FILE, Kind.SHM})
_BESIDE = frozenset({Kind.CLOCK, Kind.MEMORY})  # what a rank does between two tries
_FINDS = frozenset({"lstat", "stat"})
_LOOKS = frozenset({"lstat", "open", "read", "stat"})
_REMOVES = frozenset({"rename", "replace", "rmdir", "unlink"})
_FOR_ONE_ALONE = re.compile("x|O_EXCL")


def tried_again(running: Mapping[int, Site | None], views: Sequence[LedgerView]) -> dict[int, Wait]:
    """What the ranks that are `running`, each at a line and in no step, wait for by trying to take it again and again;
    those that do not are not in it.
    """
    found = {rank: tried for rank, site in running.items() if (tried := _tried(views[rank], site)) is not None}
    holders = _holders({record.step.target for record in found.values()}, views)
    waits: dict[int, Wait] = {}
    for rank, record in found.items():
        holder = holders.get(record.step.target)
        if holder is not None and holder != rank:
            lock = record.step.like(op=min(FILE_LOCKS), fingerprint="LOCK_EX")
            waits[rank] = Wait(rank, replace(record, step=lock, state=State.WAITING), (holder,))
    return waits


def _is_still_at(tried: Site | None, here: Site | None) -> bool:
    """Whether a rank that is `here` comes round to where it has tried, or is in the call of a library that tries."""
    if tried is None or here is None:
        return False
    return tried.place == here.place or come_round(*from_one_function(tried, here))


def makes_alone(step: Step) -> bool:
    """Whether it makes what is there for one alone: for others it fails, until that is removed."""
    return step.op == "mkdir" or (step.op == "open" and bool(_FOR_ONE_ALONE.search(step.fingerprint)))


def _tried(view: LedgerView, here: Site | None) -> Record | None:
    """The newest of the tries that are all it did last, and goes on with: of one path, which it may look at, too, in
    between.
    """
    last: Record | None = None
    times, found_there = 0, False
    for record in (record for record in reversed(view.records) if record.step.kind not in _BESIDE):
        step = record.step
        if last is not None and step.target != last.step.target:
            break
        if last is None and record.state.open and _takes(step):
            continue  # it is just about to try
        if record.state is State.RAISED and _takes(step):
            if step.op == "mkdir" and found_there:  # it need not be new
                break
            last, times = last or record, times + 1
        elif step.op not in _LOOKS or (record.state is State.ENDED and _takes(step)):
            break
        found_there = step.op in _FINDS and record.state is State.ENDED
    return last if last is not None and times >= FEWEST and _is_still_at(last.step.site, here) else None


def _takes(step: Step) -> bool:
    if step.kind not in _KINDS:
        return False
    return makes_alone(step) or (step.op in FILE_LOCKS and "LOCK_UN" not in step.fingerprint)


def _holders(targets: Set[str], views: Sequence[LedgerView]) -> dict[str, int]:
    """Who has taken each of `targets` last, and not given it up since, as far as is known; not where several may."""
    newest: dict[str, tuple[int, int, bool]] = {}
    shared = set[str]()
    for rank, view in enumerate(views if targets else ()):
        for record in view.where(lambda kind, state: kind in _KINDS and state is State.ENDED):
            step = record.step
            if step.target in targets and (_takes(step) or _gives_up(step)):
                change = record.begin_ns, rank, _takes(step)
                newest[step.target] = max(newest.get(step.target, change), change)
                shared |= {step.target} if "LOCK_SH" in step.fingerprint else set()
    return {target: rank for target, (_, rank, taken) in newest.items() if taken and target not in shared}


def _gives_up(step: Step) -> bool:
    return step.op in _REMOVES or (step.op in FILE_LOCKS and "LOCK_UN" in step.fingerprint)
