"""One buffer for all messages, which nobody looks at until the last has come: whoever was last counts."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import Written, name_called

__all__ = ["counts_the_last"]

_SENT_ON = frozenset({"all_gather", "all_gather_into_tensor", "all_reduce", "isend", "reduce", "send"})
_KEPT = frozenset({"clone", "item", "tolist"})
_CASTS = frozenset({"float", "int"})


def counts_the_last(reception: Reception, rank: int) -> bool:
    """Whether `rank` goes by what lies in the buffer after the loop, and by nothing before."""
    written, into = reception.written, reception.into
    loop = written.loop_around(reception.call)
    if not isinstance(into, ast.Name) or not isinstance(loop, ast.For | ast.While):
        return False
    inside = {id(node) for node in ast.walk(loop)}
    bindings = written.bindings(into.id)
    if not written.is_made_here(into.id) or any(id(each) in inside or each.lineno > loop.lineno for each in bindings):
        return False
    uses = [each for each in written.uses(into.id) if each is not into and not _keep_apart(written, loop, each)]
    after = [each for each in uses if each.lineno > (loop.end_lineno or 0)]
    return bool(after) and len(after) == len(uses) and _is_read(written, after[0], rank)


def _keep_apart(written: Written, loop: ast.AST, use: ast.AST) -> bool:
    """Whether a run comes to one of the two only: they lie in the two branches of a condition."""
    mine, theirs = [loop, *written.around(loop)], [use, *written.around(use)]
    for around in mine:
        if isinstance(around, ast.If) and around in theirs:
            branches = [{id(each) for each in branch} for branch in (around.body, around.orelse)]
            at = [[any(id(each) in branch for each in path) for branch in branches] for path in (mine, theirs)]
            if at in ([[True, False], [False, True]], [[False, True], [True, False]]):
                return True
    return False


def _is_read(written: Written, use: ast.AST, rank: int) -> bool:
    """Whether something is made of what lies in the buffer, or it is sent on."""
    parent = written.parent(use)
    match parent:
        case ast.BinOp() | ast.AugAssign():
            return True
        case ast.Attribute(attr=name) if name in _KEPT:
            return _is_taken(written, written.parent(parent))
        case ast.Call(func=ast.Attribute(attr="copy_"), args=[given]) if given is use:
            return True
        case ast.Call(func=ast.Name(id=name)) if name in _CASTS:
            return _is_taken(written, parent)
        case ast.Call() if name_called(parent) in _SENT_ON and parent.args[:1] == [use]:
            return True
        case ast.Call() if name_called(parent) == "broadcast" and parent.args[:1] == [use]:
            return _is_root(parent, rank)
    return False


def _is_taken(written: Written, value: ast.AST) -> bool:
    """Whether it is kept, or something is made of it: a comparison may hold whoever was last."""
    return isinstance(written.parent(value), ast.Assign | ast.BinOp | ast.keyword)


def _is_root(call: ast.Call, rank: int) -> bool:
    """Whether `rank` gives what is broadcast, and gets nothing."""
    given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "src")]
    return any(isinstance(each, ast.Constant) and each.value == rank for each in given)
