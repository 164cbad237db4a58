"""A call that some ranks make at one line and the others at another, as their rank says: ``if not main`` here, and
``if main`` further down, as around what the first rank is to do before all others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rankdrill.diagnosis.calls.asking import asks_for_the_rank
from rankdrill.diagnosis.calls.tree import calls_at, function_around, functions_in, name_called, path_to, tree_of
from rankdrill.step import Site

__all__ = ["branch_of_its_half", "in_a_thread", "other_half"]

_OPPOSITE = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


def other_half(site: Site) -> Site | None:
    """The line of the others; None where there is not one such line in that function."""
    function, mine = function_around(site), branch_of_its_half(site)
    if function is None or mine is None:
        return None
    names = {name_called(call) for call in calls_at(function, site.line)}
    lines = {
        call.lineno
        for branch in _others(function, mine)
        for call in _calls_in(branch.body)
        if name_called(call) in names
    }
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


def _calls_in(block: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    for statement in block:
        yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def in_a_thread(site: Site) -> Site | None:
    """The line of the others where they make the call in a thread that they start in its place: a writer's, say."""
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None:
        return None
    around = [(node, part) for node, part in path_to(function, site.line) if isinstance(node, ast.If)]
    if not around or not asks_for_the_rank(around[-1][0].test, tree):
        return None
    (branch, part), names = around[-1], {name_called(call) for call in calls_at(function, site.line)}
    instead = branch.orelse if part == "body" else branch.body
    started = {name for call in _calls_in(instead) if (name := _handed_over(call))}
    bodies = [each for each in functions_in(tree) if each.name in started]
    found = [(each, call) for each in bodies for call in _calls_in(each.body) if name_called(call) in names]
    if len(found) != 1:
        return None
    body, call = found[0]
    return Site(site.file, call.lineno, body.name, site.via)


def _handed_over(call: ast.Call) -> str:
    """The name of the function that is to run in another thread, if that is what is called."""
    given = next((each.value for each in call.keywords if each.arg == "target"), None)
    if name_called(call) == "submit" and call.args:
        given = call.args[0]
    return str(getattr(given, "attr", getattr(given, "id", "")))
