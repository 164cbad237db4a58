"""Comparisons that only hold if messages came in one order: with a count of places, or all of them with a list."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.written import Written, name_called, names_in, plain_copy_of

__all__ = ["JOINED", "compared_in_order", "compared_with_a_count"]

_ALIKE = frozenset({"allclose", "equal"})  # two tensors, place by place
_ASSERT_ALIKE = frozenset({"assertEqual", "assertListEqual", "assert_close", "assert_equal"})
JOINED = frozenset({"cat", "concat", "concatenate", "hstack", "stack", "vstack"})
_CASTS = frozenset({"float", "int", "len", "range"})
_UNIFORM = frozenset({"full", "full_like", "ones", "ones_like", "zeros", "zeros_like"})


def compared_with_a_count(written: Written, node: ast.AST) -> bool:
    """Whether an assertion says that `node`, or a part of it, equals something made of counts of places alone."""
    whole = _whole(written, node, parts=True)
    other = _other_side(written, whole)
    if other is None:
        return False
    names = names_in(other, but=_CASTS)
    return bool(names) and names <= written.counted


def compared_in_order(written: Written, node: ast.AST) -> bool:
    """Whether an assertion says that all places `node` equal others, one by one."""
    whole = _whole(written, node, parts=False)
    other = _other_side(written, whole)
    if other is None or isinstance(whole, ast.Constant):
        return False
    uniform = isinstance(other, ast.BinOp | ast.Constant) or name_called(other) in _UNIFORM
    return not uniform and not (names_in(other) & names_in(whole))


def _whole(written: Written, node: ast.AST, *, parts: bool) -> ast.AST:
    """The largest expression around `node` that is a copy of it, or of a part; or of all places joined."""
    while (outer := _larger(written, node, parts=parts)) is not None:
        node = outer
    return node


def _larger(written: Written, node: ast.AST, *, parts: bool) -> ast.AST | None:
    outer = written.parent(node)
    if isinstance(outer, ast.Attribute):
        outer = written.parent(outer)
    match outer:
        case ast.Call(args=[given, *_]) if given is node and name_called(outer) in JOINED:
            return None if parts else outer
        case ast.Call() if outer.func is not node and plain_copy_of(outer) is plain_copy_of(node):
            return outer
        case ast.Subscript(value=within) if within is node:
            return outer if parts else None
        case ast.comprehension(iter=iterated) if iterated is node and not parts:
            listed = written.parent(outer)
            return listed if isinstance(listed, ast.ListComp) and _copies_each(listed) else None
    return None


def _copies_each(listed: ast.ListComp) -> bool:
    """Whether it makes a list of all elements' content."""
    (generator, *more) = listed.generators
    kept = plain_copy_of(listed.elt)
    same = isinstance(kept, ast.Name) and isinstance(generator.target, ast.Name) and kept.id == generator.target.id
    return same and not more and not generator.ifs


def _other_side(written: Written, node: ast.AST) -> ast.expr | None:
    """What an assertion says that `node` equals; None where it says something else."""
    outer = written.parent(node)
    match outer:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return (right if left is node else left) if _is_asserted(written, outer) else None
        case ast.Call(args=[first, second]) if name_called(outer) in _ALIKE:
            return (second if first is node else first) if _is_asserted(written, outer) else None
        case ast.Call(args=[first, second, *_]) if name_called(outer) in _ASSERT_ALIKE:
            stated = isinstance(written.parent(outer), ast.Expr)
            return (second if first is node else first) if stated else None
    return None


def _is_asserted(written: Written, node: ast.AST) -> bool:
    """Whether the program fails unless it is so."""
    outer = written.parent(node)
    if isinstance(outer, ast.Attribute) and outer.attr == "all":  # of each element
        return _is_asserted(written, written.parent(outer))
    if isinstance(outer, ast.BoolOp) and isinstance(outer.op, ast.And):
        return _is_asserted(written, outer)
    return isinstance(outer, ast.Assert) and outer.test is node
