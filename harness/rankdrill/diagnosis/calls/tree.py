"""A file's source as a tree, and the way down it to a line: what lines are in, and what is called there."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Collection, Iterator
from functools import lru_cache

from rankdrill.step import Site

__all__ = [
    "COMPREHENSIONS",
    "FUNCTIONS",
    "IN_PLACE",
    "LEAVES",
    "LOOPS",
    "STRAIGHT",
    "Path",
    "calls_at",
    "function_around",
    "functions_in",
    "holds_several",
    "is_called_once",
    "lines_calling",
    "name_called",
    "names_in",
    "path_to",
    "paths_of",
    "shared",
    "tree_of",
]

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
STRAIGHT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.With, ast.Return, ast.expr)
"""What a rank does not go past."""
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""Functions that run where they are written."""
Path = tuple[tuple[ast.AST, str], ...]
"""From the function down to a statement: each node, and in which of its parts the next one lies."""


def tree_of(file: str) -> ast.Module | None:
    """The source of `file`; None where it is not to be had."""
    try:
        return _parsed(file)
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(maxsize=16)
def _parsed(file: str) -> ast.Module:
    lines = linecache.getlines(file)
    if not lines:  # want of memory, or of descriptors, may be over when it is asked for next: so that is not kept
        raise FileNotFoundError(file)
    return ast.parse("".join(lines))


def function_around(site: Site) -> ast.AST | None:
    """The innermost function around `site`, if it is the one that ran there."""
    tree = tree_of(site.file)
    if tree is None:
        return None
    around = [node for node in functions_in(tree) if node.lineno <= site.line <= (node.end_lineno or 0)]
    innermost = max(around, key=lambda node: node.lineno, default=None)
    if site.function in IN_PLACE:
        return innermost or tree
    if innermost is None:
        return tree if site.function == "<module>" else None
    return innermost if innermost.name == site.function else None


@lru_cache(maxsize=16)
def functions_in(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    # Asked of each line of each rank: to walk a file of some hundred lines takes 7 ms.
    return tuple(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def path_to(function: ast.AST, line: int) -> Path:
    """From `function` down to the innermost statement that `line` is part of: each node, and which of its parts."""
    return _path(function, line) or ()


def _path(node: ast.AST, line: int) -> Path | None:
    """The way from `node` to the innermost statement that `line` is part of."""
    if not getattr(node, "lineno", 1) <= line <= getattr(node, "end_lineno", line):
        return None
    for part, child in _children(node):
        below = _path(child, line)
        if below is not None:
            return ((node, part), *below)
    return () if hasattr(node, "lineno") else None  # a case of a match says not where it is


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What lies in `node`, with the part it lies in; the cases of a match and the handlers of a try are parts each."""
    for part, value in ast.iter_fields(node):
        for place, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.stmt | ast.expr | ast.excepthandler | ast.match_case):
                each = part in ("handlers", "cases")
                yield f"{part} {place}" if each else part, child


def paths_of(one: Site, other: Site) -> tuple[Path, Path] | None:
    if one.file != other.file:
        return None
    mine, theirs = function_around(one), function_around(other)
    if mine is None or mine is not theirs:
        return None
    first, second = _path(mine, one.line), _path(mine, other.line)
    return (first, second) if first and second else None


def shared(one: Path, other: Path) -> int:
    """How many steps from the function down both ways have in common."""
    return next((at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs), len(one))


def name_called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def lines_calling(names: Collection[str], function: ast.AST) -> set[int]:
    """The lines in which one of `names` is called, as a function or a method."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return {node.lineno for node in calls if name_called(node) in names}


def calls_at(function: ast.AST, line: int) -> list[ast.Call]:
    """The outermost calls that begin in `line`."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == line]
    inner = {id(below) for node in found for below in ast.walk(node) if below is not node}
    return [node for node in found if id(node) not in inner]


def holds_several(site: Site, op: str) -> bool:
    """Whether a run of that line makes more than one such call: which of them it is, nobody can say."""
    return _times_called(site, op) > 1


def is_called_once(site: Site, op: str) -> bool:
    """Whether a run of that line makes one such call, by its name: not ``each()``, which may be any."""
    return _times_called(site, op) == 1


def _times_called(site: Site, op: str) -> int:
    tree = tree_of(site.file)
    names = {op, site.via.rpartition(".")[2] or op}
    return _most_calls(names, tree, site.line) if tree is not None else 0


def _most_calls(names: Collection[str], node: ast.AST, line: int) -> int:
    """How many of the outermost calls that begin in `line` a run makes of `names`: of ``a() if … else b()`` one."""
    if getattr(node, "end_lineno", line) < line or getattr(node, "lineno", line) > line:
        return 0
    if isinstance(node, ast.Call) and node.lineno == line:
        return int(name_called(node) in names)
    if isinstance(node, ast.IfExp):
        test, *arms = (_most_calls(names, part, line) for part in (node.test, node.body, node.orelse))
        return test + max(arms)
    return sum(_most_calls(names, part, line) for part in ast.iter_child_nodes(node))
