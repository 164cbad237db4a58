"""Which ranks come to a line, by the conditions around it and before it that compare a rank with a number."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable

from rankdrill.diagnosis.calls.tree import calls_at, function_around
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["let_through", "may_come"]

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SIGNS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# The rank in the world, however it is come by: not that of a node, or within a group.
_RANK = re.compile(r"(^|\.)_*((global|my|own|this|current|world)_)?rank(_id)?(\.index)?$|(^|\.)get_(global_)?rank\(\)$")


def may_come(site: Site, ranks: Iterable[int]) -> frozenset[int]:
    """Those of `ranks` that may come to `site`, by its own function and those that led there: all if nobody asks."""
    found = frozenset(ranks)
    for each in outward(site):
        function = function_around(each)
        calls = calls_at(function, each.line) if function is not None else []
        if calls and isinstance(body := getattr(function, "body", None), list):
            found = let_through(body, calls[0], found)
    return found


def let_through(block: list[ast.stmt], node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
    """Those of `ranks` that come through `block` to `node`, by the conditions on ranks around it and before it."""
    for statement in block:
        if _within([statement], node):
            return _let_into(statement, node, ranks)
        if isinstance(statement, ast.If):
            if statement.body and isinstance(statement.body[-1], _LEAVES):
                ranks -= _those(statement.test, ranks, held=True, certain=True)
            if statement.orelse and isinstance(statement.orelse[-1], _LEAVES):
                ranks -= _those(statement.test, ranks, held=False, certain=True)
    return ranks


def _let_into(statement: ast.AST, node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
    for part in ("body", "orelse"):
        inner = getattr(statement, part, [])
        inner = inner if isinstance(inner, list) else [inner]
        if not _within(inner, node):
            continue
        if isinstance(statement, ast.If | ast.IfExp):
            ranks = _those(statement.test, ranks, held=part == "body", certain=False)
        return let_through(inner, node, ranks)
    return next(
        (_let_into(child, node, ranks) for child in ast.iter_child_nodes(statement) if _within([child], node)), ranks
    )


def _those(test: ast.expr, ranks: frozenset[int], *, held: bool, certain: bool) -> frozenset[int]:
    """Those of `ranks` for which `test` may be `held`, or may not be; if `certain`, those for which that is so."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            if _RANK.search(ast.unparse(inner)):
                return frozenset(rank for rank in ranks if (rank == 0) is held)
            return _those(inner, ranks, held=not held, certain=certain)
        case ast.Compare(left=left, ops=[sign], comparators=[ast.Constant(value=int(number))]) if type(sign) in _SIGNS:
            if _RANK.search(ast.unparse(left)):
                return frozenset(rank for rank in ranks if _SIGNS[type(sign)](rank, number) is held)
        case ast.BoolOp(op=joint, values=parts):
            each = [_those(part, ranks, held=held, certain=certain) for part in parts]
            all_of = isinstance(joint, ast.And) is held
            return frozenset.intersection(*each) if all_of else frozenset().union(*each)
        case ast.Name() | ast.Attribute() | ast.Call() if _RANK.search(ast.unparse(test)):
            return frozenset(rank for rank in ranks if (rank != 0) is held)
    return frozenset() if certain else ranks


def _within(block: Iterable[ast.AST], node: ast.AST) -> bool:
    return any(below is node for part in block for below in ast.walk(part))
