"""Messages of which it is asked which place the best of all lies in: ``readers[scores.argmax()]``."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.written import Written, name_called, names_in

__all__ = ["is_asked_for_the_best_place"]

_PLACES = frozenset({"argmax", "argmin", "argsort"})
_RESHAPED = frozenset({"contiguous", "double", "flatten", "float", "ravel", "reshape", "squeeze", "view"})


def is_asked_for_the_best_place(written: Written, use: ast.Name) -> bool:
    """Whether the place of the greatest or the least of all that `use` stands for says from whom it came.

    So it does divided by how much each message holds, and as the place in a list. Where in one message it lies says
    nothing of whose that is.
    """
    node: ast.AST = use
    while isinstance(method := written.parent(node), ast.Attribute) and isinstance(
        call := written.parent(method), ast.Call
    ):
        if method.attr in _PLACES:
            return _is_over_all(call.args[:1], call.keywords) and _says_from_whom(written, call, use.id)
        if method.attr not in _RESHAPED:
            return False
        node = call
    asked = written.parent(node)
    if not isinstance(asked, ast.Call) or name_called(asked) not in _PLACES or asked.args[:1] != [node]:
        return False
    return _is_over_all(asked.args[1:2], asked.keywords) and _says_from_whom(written, asked, use.id)


def _is_over_all(dim: list[ast.expr], keywords: list[ast.keyword]) -> bool:
    """Whether it is the place among the messages, and not one in each of them."""
    given = [*dim, *(each.value for each in keywords if each.arg == "dim")]
    return not given or (isinstance(given[0], ast.Constant) and given[0].value == 0)


def _says_from_whom(written: Written, place: ast.expr, whose: str) -> bool:
    node: ast.AST = place
    while isinstance(outer := written.parent(node), ast.Attribute | ast.Call) and node in (
        getattr(outer, "value", None),
        getattr(outer, "func", None),
        *getattr(outer, "args", ())[:1],
    ):
        if isinstance(outer, ast.Call) and outer.func is not node and name_called(outer) != "int":
            return False
        node = outer  # .item(), int(…)
    match outer:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return any(_tells_one_apart(written, each, whose) for each in written.uses(name))
    return _tells_one_apart(written, node, whose)


def _tells_one_apart(written: Written, number: ast.AST, whose: str) -> bool:
    """Whether it is divided by how much each message holds, or is the place in a list of something else."""
    match written.parent(number):
        case ast.BinOp(op=ast.FloorDiv(), left=left):
            return left is number
        case ast.Subscript(value=ast.Name(id=name), slice=index) if index is number:
            made = (written.value_of(each) for each in written.bindings(name))
            return name != whose and not any(whose in names_in(each) for each in made if each is not None)
    return False
