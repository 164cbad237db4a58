"""Ranks that wait for each other by locks of files: who took one where others do not, or two the other way round."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.tree import calls_at, function_around, lines_calling, name_called, path_to, tree_of
from rankdrill.diagnosis.stores.keys import awaits_lock
from rankdrill.diagnosis.stores.lock_files import makes_alone
from rankdrill.diagnosis.waits import Wait
from rankdrill.ledger import LedgerView, Record, State
from rankdrill.site import outward
from rankdrill.step import FILE_LOCKS, Kind, Site, Step

__all__ = ["holds_alone", "in_another_order", "taken_in"]


def in_another_order(holding: Mapping[int, Wait], views: Sequence[LedgerView]) -> tuple[int, ...]:
    """The one of two holders that takes two locks in another order than all others that take both.

    Who waits for the first of them, at the one line by which both holders take them, is about to do so.
    """
    locks = {wait.record.step.target for wait in holding.values()}
    if len(locks) != 2 or len(holding) != 2:
        return ()
    own = [record for rank in holding for record in _lockings(views[rank], locks)]
    one_line = len({record.step.site for record in own}) == 1
    first: dict[str, list[int]] = {lock: [] for lock in locks}
    for rank, view in enumerate(views):
        lock = _first_of_two(_lockings(view, locks), own[0].step.site if one_line else None)
        if lock is not None:
            first[lock].append(rank)
    few, most = sorted(first.values(), key=len)
    return tuple(few) if len(few) == 1 < len(most) and few[0] in holding else ()


def _lockings(view: LedgerView, locks: Set[str]) -> list[Record]:
    """What a rank did with these locks, in order: what failed aside."""
    of_files = view.where(lambda kind, state: kind in (Kind.FILE, Kind.SHM) and state is not State.RAISED)
    return [record for record in of_files if record.step.target in locks and record.step.op in FILE_LOCKS]


def _first_of_two(lockings: Sequence[Record], at: Site | None) -> str | None:
    """Which it held when it took the other one, the newest time; or which it waits for at that line, and holds none."""
    held: list[str] = []
    found = None
    for record in lockings:
        target = record.step.target
        if not _takes(record):
            held = [each for each in held if each != target]
            continue
        if held and held[0] != target:
            found = held[0]
        elif not held and record.state.open and at is not None and record.step.site == at:
            found = target
        held.append(target)
    return found


def _takes(record: Record) -> bool:
    return awaits_lock(replace(record.step, fingerprint="")) and "LOCK_UN" not in record.step.fingerprint


def holds_alone(waits: Mapping[int, Wait], holding: Mapping[int, Wait], views: Sequence[LedgerView]) -> tuple[int, ...]:
    """The one that holds what several others wait for, if it has taken it at a line of its own, or by way of one.

    Where all take it at one line, it is by chance that this one was the first.
    """
    waiting = [rank for rank, wait in waits.items() if awaits_lock(wait.record.step)]
    if len(holding) != 1 or len(waiting) < 2 or {*waiting, *holding} != waits.keys():
        return ()
    ((holder, wait),) = holding.items()
    taken = taken_in(wait.record, views[holder])
    own = _way(taken.step.site if taken is not None else None)
    sites = [waits[rank].record.step.site for rank in waiting]
    step = waits[holder].record.step
    if _is_made_elsewhere_by_others(step.site, asked_inside=True):
        return (holder,)
    if any(_would_do_so_too(site, step) for site in sites):
        return ()
    apart = bool(own) and {_way(site) for site in sites}.isdisjoint({(), own})
    return (holder,) if apart or _is_made_elsewhere_by_others(step.site) else ()


def _is_made_elsewhere_by_others(site: Site | None, *, asked_inside: bool = False) -> bool:
    """Whether the holder waits in a call that it makes in a ``with`` because of which rank it is, and the same call is
    written once more behind that block. With `asked_inside` only if that block itself asks for the rank: then all take
    the lock, and only some make the call with it.
    """
    function, tree = (function_around(site), tree_of(site.file)) if site is not None else (None, None)
    if site is None or function is None or tree is None:
        return False
    path = path_to(function, site.line)
    blocks = [node for node, part in path if isinstance(node, ast.With) and part == "body"]
    asked = [node for node, part in path if isinstance(node, ast.If) and part == "body"]
    if asked_inside:
        asked = [node for node in asked if blocks and node.lineno > blocks[0].lineno]
    of_its_rank = any(asks_for_the_rank(node.test, tree) for node in asked)
    names = {name_called(call) for call in calls_at(function, site.line)}
    behind = {line for line in lines_calling(names, function) if blocks and line > (blocks[0].end_lineno or site.line)}
    return of_its_rank and bool(behind)


def _would_do_so_too(site: Site | None, held_in: Step) -> bool:
    """Whether a ``with`` in the line that takes the lock, or led there, has such a call in its block."""
    names = {held_in.op, held_in.site.via.rpartition(".")[2] if held_in.site is not None else ""}
    for each in outward(site):
        function = function_around(each)
        blocks = (node for node in ast.walk(function) if isinstance(node, ast.With)) if function is not None else ()
        for block in blocks:
            if block.lineno == each.line and not names.isdisjoint(map(name_called, _calls_in(block))):
                return True
    return False


def _calls_in(block: ast.With) -> Iterator[ast.Call]:
    yield from (node for part in block.body for node in ast.walk(part) if isinstance(node, ast.Call))


def _way(site: Site | None) -> tuple[tuple[str, int], ...]:
    """Its line, and those of its callers."""
    return tuple(each.place for each in outward(site))


def taken_in(lock: Record, view: LedgerView) -> Record | None:
    """Where the holder took the lock."""
    ended = view.where(lambda kind, state: kind is lock.step.kind and state is State.ENDED)
    there = [record for record in ended if record.step.target == lock.step.target]
    taken = [record for record in there if _takes(record) or makes_alone(record.step)]
    return taken[-1] if taken else None
