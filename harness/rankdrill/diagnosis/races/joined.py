"""Messages that are made one tensor, in the order in which they came: ``torch.cat(halves)``."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.compared import JOINED
from rankdrill.diagnosis.races.written import Written, name_called

__all__ = ["is_joined_in_order", "parts_of"]


def is_joined_in_order(written: Written, use: ast.Name) -> bool:
    """Whether one tensor of all places `use` is returned, in their order, or read in one of its places:
    ``return torch.cat([*parts, own])``.
    """
    node: ast.AST = use
    while isinstance(outer := written.parent(node), ast.Starred | ast.List | ast.Tuple):
        node = outer
    if not isinstance(outer, ast.Call) or name_called(outer) not in JOINED or outer.args[:1] != [node]:
        return False
    match written.parent(outer):
        case ast.Return():
            return True
        case ast.Subscript(value=given, slice=index) if given is outer:
            return _is_one_place(index)
        case ast.Assign(targets=[ast.Name(id=name)]) if len(written.bindings(name)) == 1:
            return any(_is_read_in_one_place(written, each) for each in written.uses(name))
    return False


def _is_read_in_one_place(written: Written, whole: ast.Name) -> bool:
    match written.parent(whole):
        case ast.Subscript(value=given, slice=index, ctx=ast.Load()) as read if given is whole:
            asked = written.parent(read)
            about = isinstance(asked, ast.Attribute) and asked.attr in ("device", "dtype", "ndim", "shape")
            return _is_one_place(index) and not about
    return False


def _is_one_place(index: ast.expr) -> bool:
    """Whether it says where along the dimension in which they were joined, which is the first, and not all of it."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    match first:
        case ast.Slice(lower=lower, upper=upper):
            return lower is not None or upper is not None
        case ast.UnaryOp(operand=ast.Constant()):
            return True
    return isinstance(first, ast.Constant) and isinstance(first.value, int)


def parts_of(node: ast.AST) -> list[ast.expr]:
    """What is joined there, one by one; nothing where that is not written there."""
    match node:
        case ast.Call(args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_]) if name_called(node) in JOINED:
            return parts
    return []
