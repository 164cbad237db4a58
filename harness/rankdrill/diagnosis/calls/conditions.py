"""How a rank went past a call that it left out, where the source leaves one way, or two.

Past a line lead an ``if`` around it, one before it that ends in a return, a ``continue`` or a ``break``, the end of a
loop around it, and an error that a handler around it caught. Where the rank is now, and whether it has come there
before, rule some of them out. Of more than two that are left none is told, and none either where one of several
handlers may have caught an error. Where the line itself may have been come to without the call, as a backward pass
under DDP's `no_sync`, only a condition is told that asks for the rank.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.common_caller import in_any_loop
from rankdrill.diagnosis.calls.loops import is_in_a_loop
from rankdrill.diagnosis.calls.tree import (
    COMPREHENSIONS,
    FUNCTIONS,
    IN_PLACE,
    LOOPS,
    STRAIGHT,
    Path,
    calls_at,
    function_around,
    name_called,
    names_in,
    path_to,
    tree_of,
)
from rankdrill.diagnosis.finding import Finding, FindingKind, side_of
from rankdrill.ledger import LedgerView, State
from rankdrill.site import one_call, outward
from rankdrill.step import BATCH, HANDED_OVER, Site
from rankdrill.whose import Whose, whose_file

__all__ = [
    "chooses_between",
    "comes_with_each_round",
    "goes_as_far_as_the_rank_says",
    "may_be_left_out",
    "with_condition",
]

MOST_WAYS = 2  # told of one call
MOST_SHOWN = 60  # characters of a condition
_KINDS = frozenset({FindingKind.MISSING, FindingKind.UNMATCHED})
_LEAVES = (ast.Return, ast.Continue, ast.Break)
_PLAIN = (
    ast.Name,
    ast.Constant,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.expr_context,
    ast.cmpop,
    ast.boolop,
    ast.unaryop,
)
_KNOWN = (*STRAIGHT, *FUNCTIONS, *LOOPS, ast.If, ast.Try, ast.Module)
_SWALLOWS = ("suppress(", "raises(")


_Node: TypeAlias = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler


@dataclass(frozen=True)
class _Way:
    """The `node` by which a rank may go past a line, and to what then, if that is a block of the node's own."""

    node: _Node
    taken: Sequence[ast.stmt] = ()


def with_condition(finding: Finding, views: Sequence[LedgerView] | Mapping[int, LedgerView]) -> Finding:
    """`finding`, and of a call that was left out how who did went past it, if it can be said: the culprits, or one side
    of two where nobody is in the majority.
    """
    first, *others = finding.sides
    if any(side.ranks == first.ranks and side.goes_past for side in others):
        return finding
    if finding.kind not in _KINDS or finding.culprits not in (first.ranks, ()) or not first.leaves_out:
        return finding
    site, *more = dict.fromkeys(first.sites)
    if site is None or more or site.via == BATCH:  # which was come to, with other messages
        return finding
    now = next((side.sites[0] for side in others if side.ranks == first.ranks and not side.returned), None)
    last = next((side.sites[0] for side in others if side.ranks == first.ranks and side.returned), None)
    if first.ranks and not any(side.ranks == first.ranks for side in others):
        now, last = _is_at(views[first.ranks[0]])
    if now is not None and now == site and site.via:  # a library left it out, in what it is at still
        return finding
    again = all(_has_come(site, views[rank]) for rank in first.ranks)
    if again and not in_any_loop(site):  # it is in there, it may be, and what it calls makes several
        return finding
    found = _ways_past(site, now, last, again=again)
    if not 0 < len(found) <= MOST_WAYS:
        return finding
    *either, (line, words) = found
    told = "".join(f"{other}, at {at}, or by " for at, other in either) + words
    did = f"{'goes' if len(first.ranks) == 1 else 'go'} past it by {told}"
    return replace(finding, sides=(first, side_of(first.ranks, did, [line] * len(first.ranks)), *others))


def may_be_left_out(site: Site) -> bool:
    """Whether something in its own function but the end of a loop leads past `site`, once that has been come to."""
    function = function_around(site)
    if function is None:
        return True
    path = path_to(function, site.line)
    return _may_be_thrown_past(path, None) or any(isinstance(way.node, ast.If) for way in _ways(path, site.line))


def chooses_between(one: Site, other: Site) -> bool:
    """Whether an ``if`` with its ``elif`` and ``else`` leads to one of the two or to the other, or to a third in their
    place, and nothing else but the end of a loop leads past either: who is not at the one has not gone past both.

    A loop may have fewer rounds on one rank: it is to have as many on all, or the ``if`` asks for the rank itself.
    """
    function, tree = function_around(one), tree_of(one.file)
    if function is None or tree is None or function_around(other) is not function:
        return False
    paths = [(path_to(function, site.line), site.line) for site in (one, other)]
    if any(_may_be_thrown_past(path, None) for path, _ in paths):
        return False
    asked = [[way.node for way in _ways(path, line) if isinstance(way.node, ast.If)] for path, line in paths]
    chain = max(asked, key=len)
    loops = [node for node, part in paths[0][0] if isinstance(node, ast.For | ast.AsyncFor | ast.While)]
    if not all(map(_is_fixed, loops)) and not any(asks_for_the_rank(each.test, tree) for each in chain):
        return False
    linked = all(first.orelse == [then] for first, then in pairwise(chain))
    return linked and bool(chain[-1:] and chain[-1].orelse) and all(each == chain[: len(each)] != [] for each in asked)


def comes_with_each_round(site: Site) -> bool:
    """Whether a loop is around it, or around one of the calls that led to it, no round of which leads past it."""
    for each in outward(site):
        if may_be_left_out(each):
            return False
        if is_in_a_loop(each):
            return True
    return False


def goes_as_far_as_the_rank_says(site: Site) -> bool:
    """Whether it is come to as often as the rank says: by a loop over so many, or an ``if turn < mine`` in one, or for
    those turns that are the rank's, ``if turn % size == rank``.
    """
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None:
        return False
    path = path_to(function, site.line)
    loops = [node for node, part in path if isinstance(node, ast.For) and part == "body"]
    turns = {name for loop in loops for name in names_in(loop.target)}
    tests = [each for node, _ in path if isinstance(node, ast.If) for each in ast.walk(node.test)]
    compared = [each for each in tests if isinstance(each, ast.Compare) and not turns.isdisjoint(names_in(each))]
    of_turns = [each for each in compared if not any(isinstance(part, ast.Tuple) for part in ast.walk(each))]
    return any(asks_for_the_rank(each, tree) for each in (*(loop.iter for loop in loops), *of_turns))


def _is_at(view: LedgerView) -> tuple[Site | None, Site | None]:
    """Where the rank is in a call, or was refused one; if in none, where it made its last."""
    newest = view.last_open or view.last
    site = newest.step.site if newest is not None else None
    return (None, site) if newest is None or newest.state is State.ENDED else (site, None)


def _has_come(site: Site, view: LedgerView) -> bool:
    return any(record.step.site == site for record in view.records)


def _ways_past(site: Site, now: Site | None, last: Site | None, *, again: bool) -> list[tuple[Site, str]]:
    """The lines of the ways past `site` for a rank that is at `now`, the nearest first, and what stands there.

    `again` says that the rank had come to `site` before. None as `now` says that it has returned, after what it called
    at `last`: it has been in what called that.
    """
    found: list[tuple[Site, _Way]] = []
    for each in outward(site):
        function, tree = function_around(each), tree_of(each.file)
        if each is not site and _called_it(each, last):
            break
        if each.via == HANDED_OVER:  # an error may have ended the thread
            break
        if each.function in IN_PLACE and each.caller is not None:  # the line is told as its function's, too
            continue
        if function is None or tree is None or whose_file(each.file) in (Whose.TORCH, Whose.OURS):
            break
        by_rank = each.place == site.place and not _is_called_there(site, function)
        path = tuple(pair for pair in path_to(function, each.line) if not _is_for_all(pair[0]))
        there = next((line for line in outward(now) if _is_of_one_run(line, each, function)), None)
        ways = _ways(path, each.line)
        if there is not None:
            ways = [way for way in ways if not _is_around(way, each.line, there.line)]
            ways = [way for way in ways if _holds(way.taken, there.line)] or ways
        if again:
            ways = [way for way in ways if _may_change(way, function, path, tree)]
        handlers = _catching(path, there, each.line if each is site else 0)
        if handlers is None:
            return []
        if by_rank:  # else the rank may have come to the line, and not to the call
            ways, handlers = [way for way in ways if _asks_for_the_rank(way, tree)], []
        found += [(each, way) for way in sorted(ways, key=lambda way: -way.node.lineno)]
        found += [(each, _Way(handler)) for handler in handlers]
        if there is not None or by_rank:
            break
    # Its callers are told with the call.
    return [(Site(each.file, way.node.lineno, each.function), _words(way.node)) for each, way in found]


def _asks_for_the_rank(way: _Way, tree: ast.AST) -> bool:
    return isinstance(way.node, ast.If) and asks_for_the_rank(way.node.test, tree)


def _is_for_all(node: ast.AST) -> bool:
    """Whether it is a comprehension that leaves nothing out."""
    return isinstance(node, COMPREHENSIONS) and not any(generator.ifs for generator in node.generators)


def _called_it(line: Site, last: Site | None) -> bool:
    """Whether what was called at `last` was called by that line, which is in no loop."""
    callers = outward(last.caller) if last is not None else ()
    alike = any(each.place == line.place and one_call(each.caller, line.caller) for each in callers)
    return alike and not in_any_loop(line)


def _is_of_one_run(line: Site, other: Site, function: ast.AST) -> bool:
    """Whether both are lines of one run of `function`, as far as is known."""
    return function_around(line) is function and one_call(line.caller, other.caller)


def _words(node: _Node) -> str:
    head = ast.unparse(node).partition("\n")[0].removesuffix(":")
    shown = head if len(head) <= MOST_SHOWN else f"{head[: MOST_SHOWN - 1]}…"
    if isinstance(node, ast.ExceptHandler):
        return f"an error that `{shown}` caught"
    return f"`{shown}`" if isinstance(node, ast.If) else f"the end of `{shown}`"


def _is_called_there(site: Site, function: ast.AST) -> bool:
    """Whether the user's own line calls it by its name, as far as that is known; or a module, each of whose forward
    passes makes it, unless something in that file is told not to.
    """
    name = site.via.rpartition(".")[2]
    called = {name_called(call) for call in calls_at(function, site.line)}
    if not name or name in called:
        return True
    return name == "forward" and bool(called) and not any("no_sync" in line for line in linecache.getlines(site.file))


# --------------------------------------------------------------------------------------------- which there are


def _ways(path: Path, line: int) -> list[_Way]:
    """All that lead past `line`, to which `path` leads."""
    found: list[_Way] = []
    for node, part in path:
        if isinstance(node, ast.If):
            in_body = part == "body" or (part == "test" and node.body[0].lineno == line)  # all of it in one line
            if in_body or part == "orelse":
                found.append(_Way(node, node.orelse if in_body else node.body))
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While) and part == "body":
            found += [] if _is_fixed(node) else [_Way(node)]
            behind = (each for each in node.body if each.lineno > line)
            found += [way for each in behind for way in _leaving(each, (ast.Return, ast.Break))]
        block = getattr(node, part, None)  # of a handler or a case that is not one
        for statement in block if isinstance(block, list) else ():
            if (statement.end_lineno or statement.lineno) < line:
                found += _leaving(statement, _LEAVES)
    return found


def _is_fixed(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether it has as many rounds on all ranks, if nothing leaves it: ``for step in range(100)``."""
    told = loop.test if isinstance(loop, ast.While) else loop.iter
    if isinstance(told, ast.Call):
        return name_called(told) == "range" and all(isinstance(each, ast.Constant) for each in told.args)
    if isinstance(told, ast.Tuple | ast.List):
        return not any(isinstance(each, ast.Starred) for each in told.elts)
    return isinstance(told, ast.Constant)


def _leaving(node: ast.AST, leaves: tuple[type[ast.stmt], ...]) -> Iterator[_Way]:
    """What in `node` ends in one that `leaves`; within a loop of its own only a return does."""
    if isinstance(node, FUNCTIONS):
        return
    if isinstance(node, ast.If):
        yield from (_Way(node, block) for block in (node.body, node.orelse) if block and isinstance(block[-1], leaves))
    for child in ast.iter_child_nodes(node):
        yield from _leaving(child, (ast.Return,) if isinstance(node, LOOPS) else leaves)


# --------------------------------------------------------------------------------------------- which it was not


def _is_around(way: _Way, line: int, now: int) -> bool:
    """Whether the rank has come to `now` by the other way, which leads to `line`, too."""
    node = way.node
    if isinstance(node, ast.ExceptHandler):
        return False
    return any(_holds(block, now) and block is not way.taken for block in (node.body, node.orelse)) and (
        isinstance(node, ast.If) or _holds(node.body, line)
    )


def _holds(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or block[-1].lineno)


def _may_change(way: _Way, function: ast.AST, path: Path, tree: ast.AST) -> bool:
    """Whether it may lead elsewhere one time than the time before: not so what asks for the rank alone."""
    if not isinstance(way.node, ast.If):
        return True
    test = way.node.test
    loops: list[ast.AST] = [node for node, part in path if isinstance(node, LOOPS) and part == "body"]
    names = names_in(test)
    if not loops:
        names -= {name for name in names & _arguments(function) if asks_for_the_rank(ast.Name(name), tree)}
    if any(names & _bound(scope) for scope in loops or [function]):
        return True
    return not asks_for_the_rank(test, tree) and not all(isinstance(each, _PLAIN) for each in ast.walk(test))


def _bound(scope: ast.AST) -> set[str]:
    stored = {each.id for each in ast.walk(scope) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    return stored | _arguments(scope)


def _arguments(scope: ast.AST) -> set[str]:
    return {each.arg for each in ast.walk(scope) if isinstance(each, ast.arg)}


def _may_be_thrown_past(path: Path, now: Site | None) -> bool:
    """Whether an error may have led past the line unseen, or what stands around it in its own statement."""
    return _catching(path, now) != []


def _catching(path: Path, now: Site | None, call: int = 0) -> list[ast.ExceptHandler] | None:
    """The handlers that may have caught an error which led past the line; None if something else may have, or nobody
    can say which of several did. Where it is the `call` itself that stands there, nothing before it may have failed
    that it begins with.
    """
    found: list[ast.ExceptHandler] = []
    for node, part in path:
        if now is not None and _is_in(node, part, now.line):
            continue
        if isinstance(node, ast.Try) and part == "body" and node.handlers:
            if call and _is_all_of(node.body[0], call):
                continue
            first, *more = node.handlers
            if more or any(isinstance(each, ast.Raise) for each in ast.walk(first)):
                return None
            found.append(first)
        if isinstance(node, ast.With | ast.AsyncWith) and part == "body" and _swallows(node):
            return None
        if not isinstance(node, _KNOWN) or isinstance(node, (ast.IfExp, ast.BoolOp, *COMPREHENSIONS)):
            return None
    return found


def _is_all_of(statement: ast.stmt, line: int) -> bool:
    """Whether it is no more than one call in that line, of names."""
    calls = sum(isinstance(each, ast.Call) for each in ast.walk(statement))
    return isinstance(statement, ast.Expr | ast.Assign) and statement.lineno == line and calls == 1


def _swallows(node: ast.With | ast.AsyncWith) -> bool:
    return any(word in ast.unparse(item.context_expr) for item in node.items for word in _SWALLOWS)


def _is_in(node: ast.AST, part: str, line: int) -> bool:
    block = getattr(node, part, None)
    return isinstance(block, list) and _holds(block, line)
