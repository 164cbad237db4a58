"""Messages of which it is asked which place the best of all lies in: ``readers[scores.argmax()]``."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.written import Written, name_called

__all__ = ["is_asked_for_the_best_place"]

_PLACES = frozenset({"argmax", "argmin", "argsort"})
_RESHAPED = frozenset({"contiguous", "double", "flatten", "float", "ravel", "reshape", "squeeze", "view"})


def is_asked_for_the_best_place(written: Written, use: ast.Name) -> bool:
    """Whether the place of the greatest or the least of all that `use` stands for says from whom it came.

    Not what is left of that number by ``%``: where in one message it lies, whosever that is.
    """
    node: ast.AST = use
    while isinstance(method := written.parent(node), ast.Attribute) and isinstance(
        call := written.parent(method), ast.Call
    ):
        if method.attr in _PLACES:
            return _is_over_all(call.args[:1], call.keywords) and _says_from_whom(written, call)
        if method.attr not in _RESHAPED:
            return False
        node = call
    asked = written.parent(node)
    if not isinstance(asked, ast.Call) or name_called(asked) not in _PLACES or asked.args[:1] != [node]:
        return False
    return _is_over_all(asked.args[1:2], asked.keywords) and _says_from_whom(written, asked)


def _is_over_all(dim: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    """Whether it is the place among the messages, and not one in each of them."""
    given = [*dim, *(each.value for each in keywords if each.arg == "dim")]
    return not given or (isinstance(given[0], ast.Constant) and given[0].value == 0)


def _says_from_whom(written: Written, place: ast.expr) -> bool:
    node: ast.AST = place
    while isinstance(outer := written.parent(node), ast.Attribute | ast.Call) and node in (
        getattr(outer, "value", None),
        getattr(outer, "func", None),
        *getattr(outer, "args", ())[:1],
    ):
        node = outer  # .item(), int(…)
    match outer:
        case ast.Assign(targets=[ast.Name(id=name)]):
            uses = written.uses(name)
            return any(not _is_what_is_left(written.parent(each), each) for each in uses)
    return not _is_what_is_left(outer, node)


def _is_what_is_left(outer: ast.AST | None, node: ast.AST) -> bool:
    return isinstance(outer, ast.BinOp) and isinstance(outer.op, ast.Mod) and outer.left is node
