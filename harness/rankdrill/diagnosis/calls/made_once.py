"""Functions that keep what they found: whoever asks first makes the call in them, and it is not made again.

A ``cached_property``, or what is made where there is none yet: ``if self.norm is None: self.norm = ...``. A rank that
asks before the others makes the call too early, not once more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from rankdrill.diagnosis.calls.common_caller import from_one_function
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.tree import function_around, name_called, path_to
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["is_asked_for_later"]

_KEEP = frozenset({"cache", "cached_property", "lru_cache"})


def is_asked_for_later(site: Site, behind: Site) -> bool:
    """Whether the call at `site` is of such a function, and who is at `behind` asks for it later, in the same words."""
    one, other = from_one_function(site, behind)
    if _is_made_ahead(one):
        return True
    inner = next((each for each in outward(site) if each.caller == one), None)
    asking, kept = function_around(one), function_around(inner) if inner is not None else None
    if inner is None or asking is None or kept is None or function_around(other) is not asking:
        return False
    if not _keeps(kept, inner.line):
        return False
    asked = list(_asked(inner.function, asking))
    words = {text for text, line in asked if line == one.line}
    later = (Site(other.file, line, other.function) for text, line in asked if text in words)
    return any(order_of(other, each) is Order.AFTER for each in later)


def _asked(name: str, function: ast.AST) -> Iterator[tuple[str, int]]:
    """Where the function of that name is asked for, and in which words: of whom, and with what."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and name_called(node) == name]
    called = {id(call.func) for call in calls}
    read = (node for node in ast.walk(function) if isinstance(node, ast.Attribute) and node.attr == name)
    yield from ((ast.unparse(node), node.lineno) for node in calls)
    yield from ((ast.unparse(node), node.lineno) for node in read if id(node) not in called)


def _is_made_ahead(site: Site) -> bool:
    """Whether what is called there is for later: ``ahead = gather(turn)``, and ``ahead or gather(turn)`` elsewhere."""
    function = function_around(site)
    if function is None:
        return False
    made = {
        (target.id, name_called(node.value))
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno == site.line and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(made & _either(node) for node in ast.walk(function) if isinstance(node, ast.BoolOp | ast.IfExp))


def _either(node: ast.BoolOp | ast.IfExp) -> set[tuple[str, str]]:
    """The names in it, each with the functions that are called there where that has nothing."""
    parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
    names = [each.id for each in parts if isinstance(each, ast.Name)]
    calls = [name_called(each) for each in parts if isinstance(each, ast.Call)]
    return {(name, call) for name in names for call in calls}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _keeps(function: ast.AST, line: int) -> bool:
    """Whether what it finds at `line` is kept, and not found again."""
    decorators = getattr(function, "decorator_list", ())
    if any(_name(each.func if isinstance(each, ast.Call) else each) in _KEEP for each in decorators):
        return True
    tests = [node for node, part in path_to(function, line) if isinstance(node, ast.If) and part == "body"]
    return any(_fills(node) for node in tests)


def _fills(node: ast.If) -> bool:
    """``if self.norm is None: self.norm = ...``, ``if key not in known: known[key] = ...``."""
    match node.test:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            empty = ast.unparse(left)
        case ast.UnaryOp(op=ast.Not(), operand=left):
            empty = ast.unparse(left)
        case ast.Compare(left=key, ops=[ast.NotIn()], comparators=[known]):
            empty = f"{ast.unparse(known)}[{ast.unparse(key)}]"
        case _:
            return False
    made = (each for statement in node.body for each in ast.walk(statement) if isinstance(each, ast.Assign))
    return any(ast.unparse(target) == empty for each in made for target in each.targets)
