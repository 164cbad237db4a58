"""Lines that are for one rank or another, by what their function is called with: forward and backward, up and down."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankdrill.diagnosis.calls.tree import calls_at, function_around, names_in
from rankdrill.step import Site

__all__ = ["goes_either_way"]

_ADDRESSES = frozenset({"dst", "src"})


def goes_either_way(site: Site) -> bool:
    """Whether the peer of a message there is the one or the other, as an argument of the function around says."""
    function = function_around(site)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} - {"self"}
    addresses = set(_addresses(function, site.line))
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp | ast.If) and names_in(node.test) & arguments:
            if isinstance(node, ast.If):
                both = _bound(node.body) & _bound(node.orelse)
            else:
                both = {name for each in ast.walk(function) if _is_given(each, node) for name in _targets(each)}
            if addresses & both:
                return True
    return False


def _addresses(function: ast.AST, line: int) -> Iterator[str]:
    for call in calls_at(function, line):
        values = [each.value for each in call.keywords if each.arg in _ADDRESSES] or call.args[1:2]
        yield from (name for value in values for name in names_in(value))


def _is_given(node: ast.AST, value: ast.IfExp) -> bool:
    return isinstance(node, ast.Assign) and node.value is value


def _targets(node: ast.AST) -> set[str]:
    return {name for target in node.targets for name in names_in(target)} if isinstance(node, ast.Assign) else set()


def _bound(block: list[ast.stmt]) -> set[str]:
    return {name for statement in block for each in ast.walk(statement) for name in _targets(each)}
