"""How two lines of the user's code lie to each other, as far as their source says."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection, Iterator
from dataclasses import replace
from enum import Enum
from functools import lru_cache

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.step import Site

__all__ = [
    "LEAVES_WITH",
    "Order",
    "comes_later",
    "comes_round_alone",
    "comes_to_both",
    "comes_to_the_same",
    "function_around",
    "functions_calling",
    "is_for_some_ranks",
    "is_handled_by",
    "is_in_a_comprehension",
    "is_in_a_loop",
    "is_in_a_loop_without",
    "leaves_a_with",
    "lines_behind",
    "made_later_too",
    "nearest",
    "order_of",
    "path_to",
    "share_a_loop",
    "tree_of",
]

LEAVES_WITH = "leaves the with"
"""The `via` of a line of a ``with`` by which that is left."""
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_STRAIGHT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.With, ast.Return, ast.expr)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_EXITS = ("__exit__", "__aexit__")
_IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # run where they are written
_Path = tuple[tuple[ast.AST, str], ...]
"""From the function down to a statement: each node, and in which of its parts the next one lies."""


class Order(Enum):
    """Where the second of two lines lies, seen from the first."""

    AFTER = "after"
    BEFORE = "before"
    APART = "apart"  # a run of the function comes to one of them or to the other


def order_of(one: Site, other: Site) -> Order | None:
    """How `other` lies to `one`; None where they are not in one function, or its source is not to be had."""
    paths = _paths(one, other)
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
    return isinstance(function, _FUNCTIONS) and any("contextmanager" in ast.unparse(d) for d in function.decorator_list)


def _withs_at(site: Site) -> list[ast.With | ast.AsyncWith]:
    """The ``with`` statements whose head is in that line."""
    function = function_around(site)
    found = (node for node in ast.walk(function) if isinstance(node, ast.With | ast.AsyncWith)) if function else ()
    return [node for node in found if node.lineno <= site.line < node.body[0].lineno]


def is_handled_by(one: Site, other: Site) -> bool:
    """Whether `other` stands in an ``except`` of the ``try`` that `one` stands in."""
    paths = _paths(one, other)
    return paths is not None and any(
        node is same and isinstance(node, ast.Try) and part == "body" and their_part.startswith("handlers")
        for (node, part), (same, their_part) in zip(*paths, strict=False)
    )


def share_a_loop(one: Site, other: Site) -> bool:
    """Whether there is a loop around both."""
    paths = _paths(one, other)
    if paths is None:
        return False
    return any(isinstance(node, _LOOPS) for node, _ in paths[0][: _shared(*paths)])


def is_in_a_loop(site: Site) -> bool:
    """Whether there is a loop around it, in its function, that may bring a rank to it again."""
    function = function_around(site)
    path = (_path(function, site.line) if function is not None else None) or ()
    loops = [place for place, (node, part) in enumerate(path) if isinstance(node, _LOOPS) and part != "orelse"]
    return any(not _leaves_behind(path[place:], site.line, loops[-1] == place) for place in loops)


def _leaves_behind(path: _Path, line: int, innermost: bool) -> bool:
    """Whether what stands behind `line` in its blocks leaves the loop that `path` begins with, whatever fails there."""
    for node, part in reversed(path):
        if isinstance(node, ast.Try) and part == "body" and node.handlers:
            return False
        block = getattr(node, part, None)
        for statement in block if isinstance(block, list) else ():
            if getattr(statement, "end_lineno", 0) < line:
                continue
            if isinstance(statement, ast.Return | ast.Raise) or (innermost and isinstance(statement, ast.Break)):
                return True
            if statement.lineno > line and any(isinstance(each, ast.Continue) for each in ast.walk(statement)):
                return False
    return False


def is_in_a_comprehension(site: Site) -> bool:
    """Whether what is called there is called for each element of one, in its function."""
    if site.function in _IN_PLACE:
        return True
    function = function_around(site)
    found = (node for node in ast.walk(function) if isinstance(node, _COMPREHENSIONS)) if function is not None else ()
    return any(_calls_for_each(node, site.line) for node in found)


def _calls_for_each(comprehension: ast.AST, line: int) -> bool:
    each = [getattr(comprehension, part) for part in ("elt", "key", "value") if hasattr(comprehension, part)]
    return any(_calls_at(part, line) for part in each)


def is_in_a_loop_without(site: Site, other: Site) -> bool:
    """Whether a loop around `site`, in the function of both, leaves out `other`."""
    paths = _paths(site, other)
    return paths is not None and any(isinstance(node, _LOOPS) for node, _ in paths[0][_shared(*paths) :])


def comes_round_alone(one: Site, other: Site, *, within: bool = False) -> bool:
    """Whether a loop brings a rank from `other` to `other` again without `one`, and no other way does.

    So it is where a loop around `other`, or `within` what is called there, leaves out `one`, and what they both lie in
    never goes past `one`.
    """
    paths = _paths(one, other)
    if paths is None:
        return False
    mine, theirs = paths
    shared = _shared(mine, theirs)
    if not within and not any(isinstance(node, _LOOPS) for node, _ in theirs[shared:]):
        return False
    may_be_passed = any(not isinstance(node, _STRAIGHT) for node, _ in mine[shared:])
    block = mine[shared - 1][0]
    return not may_be_passed and not any(isinstance(node, ast.Continue) for node in ast.walk(block))


def comes_to_both(one: Site, other: Site) -> bool:
    """Whether a rank that has come to `one` of the two lines comes to the `other` as well, further down."""
    paths = _paths(one, other)
    if paths is None or order_of(one, other) is not Order.AFTER:
        return False
    theirs = paths[1][_shared(*paths) :]
    return all(isinstance(node, _STRAIGHT) for node, _ in theirs)


def is_for_some_ranks(site: Site) -> bool:
    """Whether it lies under a condition that asks which rank it is, and no such call is written for the others."""
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None:
        return False
    asked = any(
        isinstance(node, ast.If) and part == "body" and asks_for_the_rank(node.test, tree)
        for node, part in _path(function, site.line) or ()
    )
    names = {_name(call) for call in _calls_at(function, site.line)}
    return asked and _lines_calling(names, function) <= {site.line}


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def made_later_too(site: Site, behind: Site) -> bool:
    """Whether the call at `site` is written `behind` another line too, word for word, under a condition: for others.

    In the same block: what stands in another loop than that line is another call. Nor does it say anything of a call
    that stands behind that line itself.
    """
    function = function_around(site)
    if function is None or function_around(behind) is not function or order_of(behind, site) is Order.AFTER:
        return False
    written = {ast.unparse(node) for node in _calls_at(function, site.line)}
    return any(
        node.lineno not in (site.line, behind.line)
        and ast.unparse(node) in written
        and any(isinstance(around, ast.If) for around, _ in _path(function, node.lineno) or ())
        and order_of(behind, replace(behind, line=node.lineno)) is Order.AFTER
        and _in_one_block(behind, replace(behind, line=node.lineno))
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    )


def comes_to_the_same(site: Site, usual: Site) -> bool:
    """Whether a rank that is at `site` comes further down to a call written word for word as the one at `usual`."""
    function = function_around(site)
    if function is None or function_around(usual) is not function:
        return False
    written = {ast.unparse(node) for node in _calls_at(function, usual.line)}
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
    functions = _functions_in(tree) if tree is not None else ()
    return {function.name for function in functions if _lines_calling(names, function)}


def lines_behind(names: Collection[str], site: Site) -> set[int]:
    """Where one of `names` is called behind `site`, in the same function, where a rank that has come there may go."""
    function = function_around(site)
    if function is None:
        return set()
    lines = _lines_calling(names, function)
    return {line for line in lines if line > site.line and order_of(site, replace(site, line=line)) is Order.AFTER}


def nearest(names: Collection[str], site: Site) -> int | None:
    """The line of the call of one of `names` that stands nearest to `site` in the same function, in its own block."""
    function = function_around(site)
    if function is None:
        return None
    others = _lines_calling(names, function) - {site.line}
    lines = [line for line in others if _in_one_block(site, replace(site, line=line))]
    distance = min((abs(line - site.line) for line in lines), default=0)
    found = [line for line in lines if abs(line - site.line) == distance]
    return found[0] if len(found) == 1 else None


def _lines_calling(names: Collection[str], function: ast.AST) -> set[int]:
    """The lines in which one of `names` is called, as a function or a method."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return {node.lineno for node in calls if _name(node) in names}


def _in_one_block(one: Site, other: Site) -> bool:
    """Whether no loop is around one of the two alone."""
    paths = _paths(one, other)
    if paths is None:
        return False
    shared = _shared(*paths)
    return not any(isinstance(node, _LOOPS) for path in paths for node, _ in path[shared:])


def _calls_at(function: ast.AST, line: int) -> list[ast.Call]:
    """The outermost calls that begin in `line`."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == line]
    inner = {id(below) for node in found for below in ast.walk(node) if below is not node}
    return [node for node in found if id(node) not in inner]


def _shared(one: _Path, other: _Path) -> int:
    """How many steps from the function down both ways have in common."""
    return next((at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), len(one))


def _leaves_before(mine: _Path, theirs: _Path) -> bool:
    """Whether the branch that `mine` lies in ends in a return, or the like, and `theirs` lies behind the branch."""
    shared = _shared(mine, theirs)
    if not shared < min(len(mine), len(theirs)):
        return False
    (node, part), (behind, _) = mine[shared], theirs[shared]
    block: list[ast.stmt] = []
    if isinstance(node, ast.If) and part != "test":
        block = getattr(node, part)
    elif isinstance(node, ast.Try) and part.startswith("handlers"):
        block = node.handlers[int(part.split()[1])].body
    after = getattr(behind, "lineno", 0) > (getattr(node, "end_lineno", None) or 0)
    return after and bool(block) and isinstance(block[-1], _LEAVES)


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


def _paths(one: Site, other: Site) -> tuple[_Path, _Path] | None:
    if one.file != other.file:
        return None
    mine, theirs = function_around(one), function_around(other)
    if mine is None or mine is not theirs:
        return None
    first, second = _path(mine, one.line), _path(mine, other.line)
    return (first, second) if first and second else None


def function_around(site: Site) -> ast.AST | None:
    """The innermost function around `site`, if it is the one that ran there."""
    tree = tree_of(site.file)
    if tree is None:
        return None
    around = [node for node in _functions_in(tree) if node.lineno <= site.line <= (node.end_lineno or 0)]
    innermost = max(around, key=lambda node: node.lineno, default=None)
    if site.function in _IN_PLACE:
        return innermost or tree
    if innermost is None:
        return tree if site.function == "<module>" else None
    return innermost if innermost.name == site.function else None


@lru_cache(maxsize=16)
def tree_of(file: str) -> ast.Module | None:
    """The source of `file`; None where it is not to be had."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=16)
def _functions_in(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    # Asked of each line of each rank: to walk a file of some hundred lines takes 7 ms.
    return tuple(node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))


def _path(node: ast.AST, line: int) -> _Path | None:
    """The way from `node` to the innermost statement that `line` is part of."""
    if not getattr(node, "lineno", 1) <= line <= getattr(node, "end_lineno", line):
        return None
    for part, child in _children(node):
        below = _path(child, line)
        if below is not None:
            return ((node, part), *below)
    return () if hasattr(node, "lineno") else None  # a case of a match says not where it is


def path_to(function: ast.AST, line: int) -> _Path:
    """From `function` down to the innermost statement that `line` is part of: each node, and which of its parts."""
    return _path(function, line) or ()


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What lies in `node`, with the part it lies in; the cases of a match and the handlers of a try are parts each."""
    for part, value in ast.iter_fields(node):
        for place, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.stmt | ast.expr | ast.excepthandler | ast.match_case):
                each = part in ("handlers", "cases")
                yield f"{part} {place}" if each else part, child
