"""Loops that a rank leaves by what comes with a message, and by nothing else: a worker's, which stops as it is told."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.calls.tree import LOOPS, Path, calls_at, function_around, names_in, path_to
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["leaves_as_it_is_told"]


def leaves_as_it_is_told(site: Site) -> bool:
    """Whether the loop around that line, or around one that led to it, is left in sight, and never but for what came
    with the message that is received there.
    """
    told = _named_first(site)
    for each in outward(site):
        function = function_around(each)
        path = path_to(function, each.line) if function is not None else ()
        if each is not site:
            told = _assigned_at(path, each.line)
        if loop := next((node for node, part in reversed(path) if isinstance(node, LOOPS) and part == "body"), None):
            return isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and _is_left_by(loop, told)
    return False


def _named_first(site: Site) -> set[str]:
    """The names in what is given first to what is called there: the tensor that is received into."""
    function = function_around(site)
    calls = calls_at(function, site.line) if function is not None else ()
    return {name for call in calls for given in call.args[:1] for name in names_in(given)}


def _assigned_at(path: Path, line: int) -> set[str]:
    """The names that what is called in that line is assigned to."""
    around = (each for node, part in path for each in _block(node, part) if each.lineno == line)
    found = (each for each in around if isinstance(each, ast.Assign))
    return {name for each in found for target in each.targets for name in names_in(target)}


def _block(node: ast.AST, part: str) -> list[ast.stmt]:
    block = getattr(node, part, None)
    return block if isinstance(block, list) else []


def _is_left_by(loop: ast.While, told: set[str]) -> bool:
    """Whether it has ways out, each of which asks for what is `told`, or for what is made of that."""
    made = [each for each in ast.walk(loop) if isinstance(each, ast.Assign)]
    for each in made:
        if not told.isdisjoint(names_in(each.value)):
            told = told | {name for target in each.targets for name in names_in(target)}
    exits = [node.lineno for node in ast.walk(loop) if isinstance(node, ast.Return | ast.Break | ast.Raise)]
    return bool(exits) and all(_is_told_to(path_to(loop, line), told) for line in exits)


def _is_told_to(path: Path, told: set[str]) -> bool:
    """Whether what stands there is come to by what is `told` alone: by the nearest condition, or by one around that."""
    conditions = [(node.test, part) for node, part in path if isinstance(node, ast.If)]
    *outer, (nearest, _) = conditions or [(ast.Constant(value=False), "")]
    return _asks_for(nearest, told) or any(part == "body" and _asks_for(test, told) for test, part in outer)


def _asks_for(test: ast.expr, told: set[str]) -> bool:
    """Whether `test` never holds without what is `told`: each part of an ``or`` asks for it, or one of an ``and``."""
    if isinstance(test, ast.BoolOp):
        parts = [_asks_for(each, told) for each in test.values]
        return all(parts) if isinstance(test.op, ast.Or) else any(parts)
    return not told.isdisjoint(names_in(test))
