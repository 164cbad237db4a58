"""Messages that are weighed each by its turn: ``total += part * worker``, as if the first to come were the first's."""

from __future__ import annotations

import ast

from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import names_in

__all__ = ["is_weighed_by_turn"]

_WEIGHS = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)


def is_weighed_by_turn(reception: Reception) -> bool:
    """Whether what is received is multiplied, or the like, by what counts the rounds of the loop that receives it."""
    written, into = reception.written, reception.into
    loop = written.loop_around(reception.call)
    if not isinstance(into, ast.Name) or not isinstance(loop, ast.For) or not reception.waits:
        return False
    turn = names_in(loop.target) & written.counted
    return any(
        isinstance(around, ast.BinOp)
        and isinstance(around.op, _WEIGHS)
        and bool(names_in(around.right if _holds(around.left, use) else around.left) & turn)
        for use in written.uses(into.id)
        if use is not into and written.loop_around(use) is loop
        for around in written.around(use)
    )


def _holds(node: ast.AST, use: ast.Name) -> bool:
    return any(each is use for each in ast.walk(node))
