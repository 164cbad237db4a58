"""How two lines of the user's code lie to each other, as far as their source says."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import TypeGuard

from rankdrill.diagnosis.calls.asking import asks_for_the_rank, names_ranks
from rankdrill.diagnosis.calls.loops import in_one_block, is_in_a_loop
from rankdrill.diagnosis.calls.tree import (
    FUNCTIONS,
    LEAVES,
    STRAIGHT,
    Path,
    calls_at,
    function_around,
    functions_in,
    lines_calling,
    name_called,
    path_to,
    paths_of,
    shared,
    tree_of,
)
from rankdrill.step import Site

__all__ = [
    "LEAVES_WITH",
    "Order",
    "comes_later",
    "comes_round_without_waiting",
    "comes_to_both",
    "comes_to_the_same",
    "functions_calling",
    "is_besides",
    "is_for_some_ranks",
    "is_handled_by",
    "leaves_a_with",
    "lines_alike",
    "lines_behind",
    "made_later_too",
    "nearest",
    "order_of",
    "round_the_loop",
    "waits_between",
]

LEAVES_WITH = "leaves the with"
"""The `via` of a line of a ``with`` by which that is left."""
_EXITS = ("__exit__", "__aexit__")
_JOINS = frozenset({"as_completed", "join", "result", "run_until_complete", "shutdown"})
_JOINS_BY_NAME = frozenset({"asyncio.run", "asyncio.wait", "futures.wait", "list", "wait"})
_FOR_ONE_RANK = re.compile(r"rank_?(zero|0|only)|(^|[._])(main|master)_(process|only|rank)", re.IGNORECASE)
"""A decorator of what one rank alone runs: `rank_zero_only`, `one_rank_only`, `on_main_process`, `master_only`."""
_POOLS = ("Executor", "Pool", "TaskGroup")


class Order(Enum):
    """Where the second of two lines lies, seen from the first."""

    AFTER = "after"
    BEFORE = "before"
    APART = "apart"  # a run of the function comes to one of them or to the other


def order_of(one: Site, other: Site) -> Order | None:
    """How `other` lies to `one`; None where they are not in one function, or its source is not to be had."""
    paths = paths_of(one, other)
    if paths is None or one.line == other.line:
        return None
    for (node, part), (same, other_part) in zip(*paths, strict=False):
        if node is not same:  # from here on they go through statements of their own
            break
        if part != other_part:
            if _exclude_each_other(node, part, other_part):
                return Order.APART
            break
    if _leaves_before(*paths) or _leaves_before(*reversed(paths)):
        return Order.APART
    return Order.AFTER if _comes_as_of(other) > _comes_as_of(one) else Order.BEFORE


def _comes_as_of(site: Site) -> tuple[int, bool]:
    """Where it is come to, to be compared: a ``with`` is left behind the last line that stands in it."""
    leaves = site.via == LEAVES_WITH
    return max((node.end_lineno or 0 for node in _withs_at(site) if leaves), default=site.line), leaves


def leaves_a_with(inner: Site | None, site: Site) -> bool:
    """Whether what is called at `site`, and comes to `inner` there if that is a line of the user's, is what a ``with``
    ends with: of its ``__exit__``, or of a generator what follows upon its ``yield``.
    """
    if inner is None:
        exits = site.via.endswith(_EXITS)
    elif inner.function in _EXITS:
        exits = True
    else:
        function = function_around(inner)
        yields = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Yield)] if function else []
        exits = _makes_a_context(function) and bool(yields) and inner.line > min(yields)
    return exits and bool(_withs_at(site))


def _makes_a_context(function: ast.AST | None) -> bool:
    return isinstance(function, FUNCTIONS) and any("contextmanager" in ast.unparse(d) for d in function.decorator_list)


def _withs_at(site: Site) -> list[ast.With | ast.AsyncWith]:
    """The ``with`` statements whose head is in that line."""
    function = function_around(site)
    found = (node for node in ast.walk(function) if isinstance(node, ast.With | ast.AsyncWith)) if function else ()
    return [node for node in found if node.lineno <= site.line < node.body[0].lineno]


def is_handled_by(one: Site, other: Site) -> bool:
    """Whether `other` stands in an ``except`` of the ``try`` that `one` stands in."""
    paths = paths_of(one, other)
    return paths is not None and any(
        node is same and isinstance(node, ast.Try) and part == "body" and their_part.startswith("handlers")
        for (node, part), (same, their_part) in zip(*paths, strict=False)
    )


def waits_between(one: Site, other: Site) -> bool:
    """Whether what the first of two lines has handed to another thread is waited for before the second, as it looks."""
    paths = paths_of(one, other)
    function = function_around(one)
    if paths is None or function is None:
        return False
    first, second = sorted((one.line, other.line))
    mine = paths[0 if one.line == first else 1][shared(*paths) :]
    if any(isinstance(node, ast.With | ast.AsyncWith) and _is_a_pool(node) for node, _ in mine):
        return True
    return any(_joins(node) and first <= node.lineno < second for node in ast.walk(function))


def comes_round_without_waiting(one: Site, other: Site) -> bool:
    """Whether a loop brings a rank from the line `one` to `other`, further up in it, and nothing on the way waits for
    what the first has handed to another thread, as it looks.
    """
    on_the_way, function = round_the_loop(one, other), function_around(one)
    if not on_the_way or function is None:
        return False
    return not any(_joins(node) and any(node.lineno in lines for lines in on_the_way) for node in ast.walk(function))


def round_the_loop(one: Site, other: Site) -> tuple[range, ...]:
    """The lines from `one` to `other`, further up in the innermost loop around both; none where there is no such."""
    paths = paths_of(one, other)
    if paths is None or order_of(one, other) is not Order.BEFORE:
        return ()
    both = paths[0][: shared(*paths)]
    if not is_in_a_loop(one):  # what stands behind it leaves that
        return ()
    loop = next((node for node, part in both[::-1] if isinstance(node, ast.For | ast.While) and part == "body"), None)
    if loop is None:
        return ()
    return range(one.line, (loop.end_lineno or one.line) + 1), range(loop.lineno, other.line + 1)


def _joins(node: ast.AST) -> TypeGuard[ast.Call | ast.Await]:
    """Whether it waits for what another thread does, or another task."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Await)
    return name_called(node) in _JOINS or ast.unparse(node.func) in _JOINS_BY_NAME


def _is_a_pool(node: ast.With | ast.AsyncWith) -> bool:
    return any(word in ast.unparse(item.context_expr) for item in node.items for word in _POOLS)


def comes_to_both(one: Site, other: Site) -> bool:
    """Whether a rank that has come to `one` of the two lines comes to the `other` as well, further down."""
    paths = paths_of(one, other)
    if paths is None or order_of(one, other) is not Order.AFTER:
        return False
    theirs = paths[1][shared(*paths) :]
    return all(isinstance(node, STRAIGHT) for node, _ in theirs)


def is_for_some_ranks(site: Site) -> bool:
    """Whether it lies under a condition that asks which rank it is, and no such call is written for the others.

    What all come to is not for the others: they would make it besides.
    """
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None or not _asks_for_the_rank(function, tree, site.line):
        return False
    names = {name_called(call) for call in calls_at(function, site.line)}
    return not any(
        order_of(site, replace(site, line=line)) is Order.APART or _asks_for_the_rank(function, tree, line)
        for line in lines_calling(names, function) - {site.line}
    )


def is_besides(site: Site) -> bool:
    """Whether it `is_for_some_ranks`, for those that what asks for the rank names: ``if rank == 0``. Who writes
    ``if rank != 1`` means that rank 1 goes past it. Nor has it anything for the others to do in its place.
    """
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None or not is_for_some_ranks(site):
        return False
    around = [node for node, _ in path_to(function, site.line) if isinstance(node, ast.If)]
    asking = [node.test for node in around if asks_for_the_rank(node.test, tree)]
    return not any(node.orelse for node in around) and all(names_ranks(test, tree) for test in asking)


def _asks_for_the_rank(function: ast.AST, tree: ast.Module, line: int) -> bool:
    """Whether who comes to `line` is asked for its rank before: also where its function is wrapped in what asks."""
    decorators = function.decorator_list if isinstance(function, FUNCTIONS) else []
    return any(_FOR_ONE_RANK.search(ast.unparse(decorator)) for decorator in decorators) or any(
        isinstance(node, ast.If)
        and (part == "body" or node.body[0].lineno == line)  # all of it in one line
        and asks_for_the_rank(node.test, tree)
        for node, part in path_to(function, line)
    )


def made_later_too(site: Site, behind: Site) -> bool:
    """Whether the call at `site` is written `behind` another line too, word for word, under a condition: for others.

    In the same block: what stands in another loop than that line is another call. Nor does it say anything of a call
    that stands behind that line itself.
    """
    function = function_around(site)
    if function is None or order_of(behind, site) is Order.AFTER:
        return False
    return any(
        any(isinstance(around, ast.If | ast.Match) for around, _ in path_to(function, line))
        and in_one_block(behind, replace(behind, line=line))
        for line in lines_alike(site, behind)
    )


def lines_alike(site: Site, behind: Site) -> set[int]:
    """Where the call at `site` is written once more, word for word, behind the line `behind` of the same function."""
    function = function_around(site)
    if function is None or function_around(behind) is not function:
        return set()
    written = {ast.unparse(node) for node in calls_at(function, site.line)}
    return {
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and node.lineno not in (site.line, behind.line)
        and ast.unparse(node) in written
        and order_of(behind, replace(behind, line=node.lineno)) is Order.AFTER
    }


def comes_to_the_same(site: Site, usual: Site) -> bool:
    """Whether a rank that is at `site` comes further down to a call written word for word as the one at `usual`."""
    function = function_around(site)
    if function is None or function_around(usual) is not function:
        return False
    written = {ast.unparse(node) for node in calls_at(function, usual.line)}
    return any(
        ast.unparse(node) in written and comes_to_both(site, replace(site, line=node.lineno))
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and node.lineno > site.line
    )


def comes_later(names: Collection[str], site: Site) -> bool:
    """Whether one of `names` is called behind `site` in the same function, where a rank that has come there may go."""
    return bool(lines_behind(names, site))


def functions_calling(names: Collection[str], file: str) -> set[str]:
    """The functions and methods of `file` in which one of `names` is called, by their own names."""
    tree = tree_of(file)
    functions = functions_in(tree) if tree is not None else ()
    return {function.name for function in functions if lines_calling(names, function)}


def lines_behind(names: Collection[str], site: Site) -> set[int]:
    """Where one of `names` is called behind `site`, in the same function, where a rank that has come there may go."""
    function = function_around(site)
    if function is None:
        return set()
    lines = lines_calling(names, function)
    return {line for line in lines if line > site.line and order_of(site, replace(site, line=line)) is Order.AFTER}


def nearest(names: Collection[str], site: Site) -> int | None:
    """The line of the call of one of `names` that stands nearest to `site` in the same function, in its own block."""
    function = function_around(site)
    if function is None:
        return None
    others = lines_calling(names, function) - {site.line}
    lines = [line for line in others if in_one_block(site, replace(site, line=line))]
    distance = min((abs(line - site.line) for line in lines), default=0)
    found = [line for line in lines if abs(line - site.line) == distance]
    return found[0] if len(found) == 1 else None


def _leaves_before(mine: Path, theirs: Path) -> bool:
    """Whether the branch that `mine` lies in ends in a return, or the like, and `theirs` lies behind the branch."""
    common = shared(mine, theirs)
    if not common < min(len(mine), len(theirs)):
        return False
    (node, part), (behind, _) = mine[common], theirs[common]
    block: list[ast.stmt] = []
    if isinstance(node, ast.If) and part != "test":
        block = getattr(node, part)
    elif isinstance(node, ast.Try) and part.startswith("handlers"):
        block = node.handlers[int(part.split()[1])].body
    after = getattr(behind, "lineno", 0) > (getattr(node, "end_lineno", None) or 0)
    return after and bool(block) and isinstance(block[-1], LEAVES)


def _exclude_each_other(node: ast.AST, part: str, other: str) -> bool:
    match node:
        case ast.If() | ast.IfExp():
            return {part, other} == {"body", "orelse"}
        case ast.Match():
            return True
        case ast.Try():
            return "handlers" in part or "handlers" in other
        case _:
            return False
