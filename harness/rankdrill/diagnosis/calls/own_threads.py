"""Two threads of one rank that issue on one group, and nothing orders the two: on each rank either may come first.

That it went well says nothing. What says something is the source: a line hands the one call to a thread, and goes on to
the other, waiting for nothing in between; nor does the thread wait for anything before its call. Where either may be
told by the other that it is its turn, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rankdrill.diagnosis.calls.source import (
    Order,
    comes_round_without_waiting,
    order_of,
    round_the_loop,
    waits_between,
)
from rankdrill.diagnosis.calls.tree import calls_at, function_around, functions_in, name_called, tree_of
from rankdrill.diagnosis.calls.turns import ORDER
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.ledger import LedgerView, Record
from rankdrill.site import outward
from rankdrill.step import HANDED_OVER, Kind, Site

__all__ = ["goes_on_beside", "on_the_way", "started_by", "unordered_threads"]

MOST_KNOWN = 1 << 10  # pairs of lines
MOST_CALLS = 64  # told apart by thread and line, of one group on one rank
MOST_FOLLOWED = 3  # functions that call each other, from a line on
_WAITING = frozenset(
    {"acquire", "as_completed", "done", "empty", "exception", "get", "get_nowait", "is_alive", "is_set", "join"}
    | {"locked", "map", "poll", "qsize", "result", "run_until_complete", "shutdown", "synchronize", "wait", "wait_for"}
)
_HAND_OVER = frozenset({"apply_async", "run_in_executor", "start", "submit", "to_thread"})
_ASKS_WHETHER_TO_GO_ON = frozenset({"is_set", "wait"})
_OUTSIDE = frozenset({"dist", "distributed"})  # what they wait for is other ranks


def unordered_threads(views: Mapping[int, LedgerView], *, met: bool = False) -> Finding | None:
    """The first two such calls, with the ranks that made them from the same lines; `views` are all ranks' ledgers.

    Where it is known that calls `met` that do not belong together, whatever was to keep them apart has not.
    """
    in_order = _by_chance if met else goes_on_beside
    found = {rank: pair for rank, view in sorted(views.items()) if (pair := _pair_in(view, in_order)) is not None}
    if not found:
        return None
    first = _lines(next(iter(found.values())))
    alike = {rank: pair for rank, pair in found.items() if _lines(pair) == first}
    one, other = next(iter(alike.values()))
    issuing, going_on = ({rank: pair[place] for rank, pair in alike.items()} for place in (0, 1))
    if met:  # a rank has come to one of them, it may be, and not to the other yet
        issuing |= _come_to(one, views, alike.keys())
        going_on |= _come_to(other, views, alike.keys())
    in_thread = f"issue{'s' if len(issuing) == 1 else ''} {one.step.op} on {one.step.target!r} in a thread"
    beside = f"go{'es' if len(going_on) == 1 else ''} on to {other.step.op}, and nothing orders the two"
    sides = (
        side_of(sorted(issuing), in_thread, [issuing[rank].step.site for rank in sorted(issuing)]),
        side_of(sorted(going_on), beside, [going_on[rank].step.site for rank in sorted(going_on)]),
    )
    culprits = tuple(sorted({*issuing, *going_on}))
    return Finding(FindingKind.CALL_ORDERING, f"{one.step.op} on {one.step.target!r}", ORDER, sides, culprits)


def _come_to(call: Record, views: Mapping[int, LedgerView], but: Collection[int]) -> dict[int, Record]:
    """The other ranks that have made that call, from that line."""
    step = call.step
    found: dict[int, Record] = {}
    for rank, view in views.items():
        for record in view.where(lambda kind, _: kind is Kind.COLLECTIVE) if rank not in but else ():
            if (record.step.op, record.step.target, record.step.site) == (step.op, step.target, step.site):
                found.setdefault(rank, record)
    return found


def _lines(pair: tuple[Record, Record]) -> list[tuple[str, int] | None]:
    return [each.step.site.place if each.step.site is not None else None for each in pair]


def _by_chance(one: Site | None, other: Site | None) -> bool:
    return one is not None and other is not None and one.place != other.place


def _pair_in(view: LedgerView, beside: Callable[[Site | None, Site | None], bool]) -> tuple[Record, Record] | None:
    by_group: dict[str, dict[tuple[int, Site], _Calls]] = {}
    for record in view.where(lambda kind, _: kind is Kind.COLLECTIVE):
        step = record.step
        if step.site is None or step.message is not None:
            continue
        known = by_group.setdefault(step.target, {})
        calls = known.get((record.thread, step.site))
        if calls is not None:
            calls.last = record
        elif len(known) < MOST_CALLS:
            known[record.thread, step.site] = _Calls(record, record)
    return next(filter(None, (_unordered(list(calls.values()), beside) for calls in by_group.values())), None)


@dataclass
class _Calls:
    """The first and the last that one thread has made at one line."""

    first: Record
    last: Record


def _unordered(calls: list[_Calls], beside: Callable[[Site | None, Site | None], bool]) -> tuple[Record, Record] | None:
    for one in calls:
        if started_by(one.first.step.site) is None:
            continue
        for other in calls:
            if other.first.thread == one.first.thread or not beside(one.first.step.site, other.first.step.site):
                continue
            # Round a loop only where it came round once more, in fact.
            if _came_round(other.last, one.first) or not _lies_further_up(other.first, one.first):
                return one.first, other.first
    return None


def _came_round(other: Record, one: Record) -> bool:
    """Whether `other` was made after the thread of `one` was started, which may have been the slower of the two."""
    return other.begin_ns > one.begin_ns or (other.state.open and not _is_asynchronous(other.step.site))


def _is_asynchronous(site: Site | None) -> bool:
    function = function_around(site) if site is not None else None
    calls = calls_at(function, site.line) if site is not None and function is not None else ()
    return any(_may_go_on(call) for call in calls)


def _may_go_on(call: ast.Call) -> bool:
    """Whether it says `async_op`, or may: as its fourth argument, or by a dictionary."""
    told = [each.value for each in call.keywords if each.arg in ("async_op", None)]
    return len(call.args) > 3 or any(not isinstance(value, ast.Constant) or value.value for value in told)


def _lies_further_up(other: Record, one: Record) -> bool:
    started = started_by(one.step.site)
    return started is not None and any(order_of(started[0], each) is Order.BEFORE for each in outward(other.step.site))


@lru_cache(maxsize=MOST_KNOWN)
def goes_on_beside(one: Site | None, other: Site | None) -> bool:
    """Whether a thread came to `one`, and who started it went on to the `other`, and neither waits for anything."""
    started = started_by(one)
    if started is None:
        return False
    start, inner = started
    return any(_goes_on(start, each, other) for each in outward(other)) and _waits_for_nothing(inner)


def started_by(site: Site | None) -> tuple[Site, list[Site]] | None:
    """The line that gave the call at `site` to a thread, and those by which the thread came to it."""
    inner: list[Site] = []
    for each in outward(site):
        if each.via == HANDED_OVER or (not inner and _gives_it_away(each)):
            return each, inner
        inner.append(each)
    return None


def _gives_it_away(site: Site) -> bool:
    """Whether its line gives torch's function itself to a thread: ``pool.submit(dist.all_reduce, loss)``."""
    function = function_around(site)
    return function is not None and any(name_called(call) in _HAND_OVER for call in calls_at(function, site.line))


def _goes_on(started: Site, goes_on: Site, other: Site | None) -> bool:
    way = on_the_way(started, goes_on) if goes_on.via != HANDED_OVER else ()
    function = function_around(started)
    if function is None or not way:
        return False
    between = (node for lines in way for node in _between(function, lines[0], lines[-1]))
    if any(_waits(node, started.file) for node in between):
        return False
    within: list[Site] = []
    for each in outward(other):
        if each == goes_on:
            break
        within.append(each)
    return _waits_for_nothing(within)


def on_the_way(started: Site, goes_on: Site) -> tuple[range, ...]:
    """The lines from the one to the other, straight on or round a loop; none where it waits for the thread there."""
    if order_of(started, goes_on) is Order.AFTER:
        return () if waits_between(started, goes_on) else (range(started.line, goes_on.line + 1),)
    return round_the_loop(started, goes_on) if comes_round_without_waiting(started, goes_on) else ()


def _waits_for_nothing(sites: list[Site]) -> bool:
    """Whether none of the functions that are called there waits before it comes to its line."""
    functions = [(site, function_around(site)) for site in sites]
    return all(
        function is not None and not any(_waits(node, site.file) for node in _between(function, 0, site.line))
        for site, function in functions
    )


def _between(function: ast.AST, first: int, last: int) -> Iterator[ast.AST]:
    """What lies in the lines from `first` to `last`; not what other functions inside do, nor what loops
    ask before they go on.
    """
    inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
    apart: list[ast.AST] = [node for node in ast.walk(function) if isinstance(node, inner)]
    apart += [node.test for node in ast.walk(function) if isinstance(node, ast.While) and _goes_on_until(node)]
    theirs = {id(each) for node in apart if node is not function for each in ast.walk(node)}
    for node in ast.walk(function):
        if first <= getattr(node, "lineno", 0) <= last and id(node) not in theirs:
            yield node


def _goes_on_until(loop: ast.While) -> bool:
    """``while not stop.wait(1.0)``: it waits for nobody's leave."""
    match loop.test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Attribute(attr=name))):
            return name in _ASKS_WHETHER_TO_GO_ON
    return False


def _waits(node: ast.AST, file: str, followed: int = 0) -> bool:
    """Whether it may wait for another thread: by a call that is known to, or by a function of the file with such."""
    if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
        return True
    if isinstance(node, ast.While):
        return not _goes_on_until(node)
    if not isinstance(node, ast.Call) or _is_outside(node):
        return False
    name = name_called(node)
    if name in _WAITING:
        return name != "get" or not node.args  # a queue's takes nothing
    tree = tree_of(file) if followed < MOST_FOLLOWED else None
    if tree is None:
        return followed >= MOST_FOLLOWED
    theirs = [function for function in functions_in(tree) if function.name == name]
    return any(_waits(each, file, followed + 1) for function in theirs for each in ast.walk(function))


def _is_outside(call: ast.Call) -> bool:
    """``dist.barrier()``."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=module) | ast.Attribute(attr=module)):
            return module in _OUTSIDE
    return False
