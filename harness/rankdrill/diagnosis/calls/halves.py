"""A call that some ranks make at one line and the others at another, as their rank says: ``if not main`` here, and
``if main`` further down, as around what the first rank is to do before all others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called, path_to, tree_of
from rankdrill.step import Site

__all__ = ["branch_of_its_half", "other_half"]

_OPPOSITE = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


def other_half(site: Site) -> Site | None:
    """The line of the others; None where there is not one such line in that function."""
    function, mine = function_around(site), branch_of_its_half(site)
    if function is None or mine is None:
        return None
    names = {name_called(call) for call in calls_at(function, site.line)}
    lines = {call.lineno for branch in _others(function, mine) for call in _calls(branch) if name_called(call) in names}
    return replace(site, line=lines.pop()) if len(lines) == 1 else None


def branch_of_its_half(site: Site) -> ast.If | None:
    """The innermost ``if`` around it, where that asks for the rank, and another one in that function for the others."""
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None:
        return None
    around = [node for node, part in path_to(function, site.line) if isinstance(node, ast.If) and part == "body"]
    if not around or not asks_for_the_rank(around[-1].test, tree):
        return None
    return around[-1] if any(True for _ in _others(function, around[-1])) else None


def _others(function: ast.AST, mine: ast.If) -> Iterator[ast.If]:
    opposite = _negated(mine.test)
    for node in ast.walk(function):
        if isinstance(node, ast.If) and node is not mine and ast.unparse(node.test) == opposite:
            yield node


def _negated(test: ast.expr) -> str:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return ast.unparse(inner)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _OPPOSITE:
            return ast.unparse(ast.Compare(left, [_OPPOSITE[type(sign)]()], [right]))
    return f"not {ast.unparse(test)}"


def _calls(branch: ast.If) -> Iterator[ast.Call]:
    for statement in branch.body:
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))
