"""Locks of a rank's threads: which line waits for one, and which has taken it, as far as the source says.

A lock does not know who holds it. But a thread whose innermost line is a `with` is about to take what is named there,
and one that is within the block of another `with` of the same words, in the same file, has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rankdrill.diagnosis.calls.source import Order, comes_later, order_of
from rankdrill.diagnosis.calls.tree import function_around, path_to
from rankdrill.diagnosis.finding import Finding, FindingKind, Side, side_of
from rankdrill.diagnosis.messages import words
from rankdrill.diagnosis.messages.traffic import SEND_CALLS
from rankdrill.diagnosis.waits import Wait, name_ranks
from rankdrill.step import RECV, Site
from rankdrill.whose import Whose, whose_file

__all__ = ["HeldLock", "held_lock", "held_locks", "in_each_others_way", "stopped_by_lock", "wants_a_lock"]

Thread = Sequence[Site]
"""The lines a thread is at, innermost first."""


@dataclass(frozen=True)
class HeldLock:
    """The lock that the source calls `lock`: where a thread waits for it, where it was taken, and by whom."""

    lock: str
    wanted_at: Site
    taken_at: Site
    holder: Thread
    by_itself: bool  # the thread that waits has taken it

    def __str__(self) -> str:
        if self.by_itself:
            return (
                f"waiting for the lock {self.lock!r} at {self.wanted_at}, which it has itself taken at {self.taken_at}"
            )
        holder = f"its thread that is at {self.holder[0]}"
        return f"waiting for the lock {self.lock!r} at {self.wanted_at}, taken at {self.taken_at} by {holder}"


def held_lock(threads: Sequence[Thread]) -> HeldLock | None:
    """The lock that one of a rank's `threads` waits for and one of them has; None where there is none."""
    return next(held_locks(threads), None)


def held_locks(threads: Sequence[Thread]) -> Iterator[HeldLock]:
    """Of each of a rank's `threads` that waits for such a lock, that one."""
    for waiting in threads:
        if waiting and whose_file(waiting[0].file) is Whose.USER:
            others = [thread for thread in threads if thread is not waiting]
            found = (_held(lock, waiting, holder) for lock in _wanted(waiting[0]) for holder in (waiting, *others))
            yield from islice(filter(None, found), 1)


def _held(lock: str, waiting: Thread, holder: Thread) -> HeldLock | None:
    taken = _taken(lock, holder, waiting[0].file, but=waiting[0])
    return None if taken is None else HeldLock(lock, _with_callers(waiting), taken, holder, holder is waiting)


def wants_a_lock(thread: Thread) -> bool:
    """Whether its innermost line takes something that was there before, as one does a lock."""
    return bool(thread) and whose_file(thread[0].file) is Whose.USER and bool(_wanted(thread[0]))


def _with_callers(thread: Thread) -> Site:
    """Its innermost line, and whence that was called."""
    users = [site for site in thread if whose_file(site.file) is Whose.USER]
    site, *callers = users
    return replace(site, caller=_with_callers(callers)) if callers else site


def stopped_by_lock(rank: int, held: HeldLock, waits: Sequence[Wait]) -> Finding | None:
    """That `rank` waits for ever because of the lock; `waits` is what all ranks wait for.

    So it does where a thread has taken it already, and where its holder waits in a step for ranks that wait for what
    follows once it has been taken.
    """
    mine = next((wait for wait in waits if wait.rank == rank), None)
    if held.by_itself:
        did = f"waits for the lock {held.lock!r}, which it has itself taken at {held.taken_at}"
        return _finding(side_of([rank], did, [held.wanted_at]), waits, kind=FindingKind.STUCK_RANK)
    if mine is None or not _is_in(mine, held.holder) or not any(_follows(held, rank, wait) for wait in waits):
        return None
    did = f"holds the lock {held.lock!r}, taken at {held.taken_at}, while it {words.waits(mine.record)}"
    waiting = side_of([rank], "waits for that lock in another thread", [held.wanted_at])
    return _finding(side_of([rank], did, [mine.record.step.site]), waits, waiting)


def in_each_others_way(found: Sequence[Finding]) -> Finding:
    """One finding for the locks of several ranks, each of which waits for another one that holds its own likewise."""
    ranks = [rank for one in found for rank in one.culprits]
    sides = tuple(side for one in found for side in one.sides if set(side.ranks) <= {*one.culprits})
    return Finding(FindingKind.DEADLOCK, f"{name_ranks(ranks)} wait for each other, each with a lock", "lock", sides)


def _finding(culprit: Side, waits: Sequence[Wait], *more: Side, kind: FindingKind = FindingKind.DEADLOCK) -> Finding:
    (rank,) = culprit.ranks
    others: dict[tuple[str, Site | None], list[Wait]] = {}
    for wait in waits:
        if wait.rank != rank and rank in wait.missing:
            others.setdefault((wait.record.step.op, wait.record.step.site), []).append(wait)
    sides = (culprit, *more, *(_side(alike) for alike in others.values()))
    return Finding(kind, f"rank {rank} waits for a lock", "lock", sides, (rank,))


def _side(alike: Sequence[Wait]) -> Side:
    record = alike[0].record
    did = words.waits(record)
    ranks = [wait.rank for wait in alike]
    return side_of(ranks, did if len(ranks) == 1 else did.replace("waits", "wait", 1), [record.step.site] * len(ranks))


def _is_in(wait: Wait, thread: Thread) -> bool:
    site = wait.record.step.site
    return site is not None and site.place in {frame.place for frame in thread}


def _follows(held: HeldLock, rank: int, wait: Wait) -> bool:
    """Whether what a rank waits for comes behind the line that waits for the lock: its own call, or a message."""
    site, message = wait.record.step.site, wait.record.step.message
    if message is not None and message.peer == rank and wait.record.step.op == RECV:
        return comes_later(SEND_CALLS, held.wanted_at)
    if site is not None and rank in wait.missing and comes_later({site.via or wait.record.step.op}, held.wanted_at):
        return True
    while site is not None:
        if order_of(held.wanted_at, site) is Order.AFTER:
            return True
        site = site.caller
    return False


def _wanted(site: Site) -> list[str]:
    """The names of what the line takes, if it takes something that was there before."""
    function = function_around(site)
    if function is None:
        return []
    nodes = [node for node in ast.walk(function) if getattr(node, "lineno", 0) == site.line]
    taken = [name for node in nodes if isinstance(node, ast.With) for name in _names(node)]
    return taken + [name for node in nodes for name in _called(node, "acquire")]


def _taken(lock: str, thread: Thread, file: str, but: Site) -> Site | None:
    """The line by which `thread` has taken `lock`; it is about to, `but` has not yet, at that one."""
    for site in thread:
        if site.file != file or (function := function_around(site)) is None:
            continue
        for node, part in reversed(path_to(function, site.line)):
            if not isinstance(node, ast.With) or part != "body" or lock not in _names(node):
                continue
            if site is not but or node.lineno != but.line:  # not the ``with`` that it is at, all of it in one line
                return replace(site, line=node.lineno)
        line = _acquired(lock, function, site.line)
        if line is not None:
            return replace(site, line=line)
    return None


def _acquired(lock: str, function: ast.AST, before: int) -> int | None:
    """The line that acquires `lock` last `before` another, if none between them releases it."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno < before]
    acquired = max((node.lineno for node in calls if lock in _called(node, "acquire")), default=None)
    if acquired is None or any(node.lineno > acquired for node in calls if lock in _called(node, "release")):
        return None
    return acquired


def _names(node: ast.With) -> Iterator[str]:
    for item in node.items:
        if isinstance(item.context_expr, ast.Name | ast.Attribute | ast.Subscript):
            yield ast.unparse(item.context_expr)


def _called(node: ast.AST, method: str) -> Iterator[str]:
    """Of what `node` calls that method."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name == method:
            yield ast.unparse(owner)
