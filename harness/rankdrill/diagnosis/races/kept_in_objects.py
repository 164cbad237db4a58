"""Messages that an object keeps for others: each under the number of a rank, or a name, whoever sent it.

That it is read by such a number, in whatever function, says that the number means somebody.
"""

from __future__ import annotations

import ast

from rankdrill.diagnosis.calls.tree import tree_of
from rankdrill.diagnosis.races.named import stands_for_a_sender
from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import Written, plain_copy_of

__all__ = ["kept_in_an_object_by_rank"]


def kept_in_an_object_by_rank(reception: Reception, file: str) -> bool:
    """Whether what is received is kept in an attribute by its sender's supposed number, and read there by a number."""
    written, into = reception.written, reception.into
    if not isinstance(into, ast.Name) or written.loop_around(reception.call) is None:
        return False
    uses = [use for use in written.uses(into.id) if use is not into and use.lineno > reception.call.lineno]
    if len(uses) != 1 or written.loop_around(uses[0]) is not written.loop_around(reception.call):
        return False
    attribute = _kept_in(written, uses[0])
    tree = tree_of(file)
    return bool(attribute) and tree is not None and _is_read_by_number(attribute, tree)


def _kept_in(written: Written, use: ast.Name) -> str:
    """The attribute that it is stored in, under what stands for a sender; empty where it is not."""
    for node in written.around(use):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(attr=attribute), slice=index)], value=value):
                kept = plain_copy_of(value) is use and stands_for_a_sender(written, index)
                return attribute if kept else ""
            case ast.stmt():
                return ""
    return ""


def _is_read_by_number(attribute: str, tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == attribute
        and isinstance(node.slice, ast.Constant)  # a name may go over all of them
        for node in ast.walk(tree)
    )
