"""Messages that are received from anybody round by round, as if each sender had one in each round.

Nothing but a meeting between the rounds keeps a sender's next message from coming before another one's first.
"""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import LOOPS, Written

__all__ = ["counts_by_rounds"]

_TAKE_IN = frozenset({"add_", "append", "extend", "maximum_", "mul_"})


def counts_by_rounds(reception: Reception) -> bool:
    """Whether what came is taken in, in a loop, by something that a loop around that begins anew each time."""
    written, into = reception.written, reception.into
    inner = written.loop_around(reception.call)
    outer = written.loop_around(inner) if inner is not None else None
    if not isinstance(into, ast.Name) or not isinstance(inner, LOOPS) or outer is None:
        return False
    uses = [use for use in written.uses(into.id) if use is not into]
    taken_in = {_taken_in_by(written, use) for use in uses}
    if len(uses) != 1 or None in taken_in:
        return False
    inside_outer, inside_inner = ({id(node) for node in ast.walk(loop)} for loop in (outer, inner))
    bindings = [node for name in taken_in if name is not None for node in written.bindings(name)]
    plain = [node for node in bindings if not isinstance(written.parent(node), ast.AugAssign)]
    return bool(plain) and all(id(node) in inside_outer and id(node) not in inside_inner for node in plain)


def _taken_in_by(written: Written, use: ast.Name) -> str | None:
    """The name of what grows by it."""
    for node in written.around(use):
        match node:
            case ast.AugAssign(target=ast.Name(id=name)):
                return name
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _TAKE_IN:
                return name
            case ast.stmt():
                return None
    return None
