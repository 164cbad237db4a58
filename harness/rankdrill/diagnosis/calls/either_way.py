"""Whom a message is with, as its function says: one rank or another by what it is called with, forward and backward; or
one and the same that it sends to and receives from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called, names_in, tree_of
from rankdrill.step import Site

__all__ = ["are_mirrored", "goes_either_way", "is_mutual"]

MOST_KNOWN = 1 << 10  # lines
_ADDRESSES = frozenset({"dst", "src"})
_HALVES = frozenset({"irecv", "isend", "recv", "send"})


def goes_either_way(site: Site) -> bool:
    """Whether the peer of a message there is the one or the other, as an argument of the function around says."""
    function = function_around(site)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)} - {"self"}
    addresses = set(_addresses(function, site.line))
    tree = tree_of(site.file)
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp | ast.If) and names_in(node.test) & arguments:
            if tree is None or asks_for_the_rank(node.test, tree):
                continue
            if isinstance(node, ast.If):
                both = _bound(node.body) & _bound(node.orelse)
            else:
                both = {name for each in ast.walk(function) if _is_given(each, node) for name in _targets(each)}
            if addresses & both:
                return True
    return False


def is_mutual(site: Site) -> bool:
    """Whether the function around sends and receives, all with the rank of one name."""
    ways = _ways(site)
    return bool(ways) and len(set(ways)) == 1


def are_mirrored(one: Site, other: Site) -> bool:
    """Whether they are in two functions, of which each sends to whom the other one receives from: down and back up."""
    mine, theirs = _ways(one), _ways(other)
    return bool(mine) and len(set(mine)) == len(mine) == 2 and mine == theirs[::-1]


@lru_cache(maxsize=MOST_KNOWN)
def _ways(site: Site) -> tuple[str, ...]:
    """Whom the function around sends to, and whom it receives from, in its own words, if that is one rank each."""
    function = function_around(site)
    if function is None:
        return ()
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and name_called(node) in _HALVES]
    given = {
        half: {
            ast.unparse(value)
            for call in calls
            if name_called(call).removeprefix("i") == half
            for value in _given(call)
        }
        for half in ("send", "recv")
    }
    alone = all(len(ways) == 1 for ways in given.values())
    return tuple(ways.pop() for ways in given.values()) if alone else ()


def _addresses(function: ast.AST, line: int) -> Iterator[str]:
    for call in calls_at(function, line):
        yield from (name for value in _given(call) for name in names_in(value))


def _given(call: ast.Call) -> list[ast.expr]:
    return [each.value for each in call.keywords if each.arg in _ADDRESSES] or call.args[1:2]


def _is_given(node: ast.AST, value: ast.IfExp) -> bool:
    return isinstance(node, ast.Assign) and node.value is value


def _targets(node: ast.AST) -> set[str]:
    return {name for target in node.targets for name in names_in(target)} if isinstance(node, ast.Assign) else set()


def _bound(block: list[ast.stmt]) -> set[str]:
    return {name for statement in block for each in ast.walk(statement) for name in _targets(each)}
