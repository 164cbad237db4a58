"""What follows from a message is sent to the next in a row of ranks, whoever it was that sent the message."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import Written, name_called, names_in, plain_copy_of

__all__ = ["answered_as_counted", "answers_in_a_row"]

_SEND = frozenset({"isend", "send"})


def answers_in_a_row(reception: Reception) -> int | None:
    """The line of the one send in the same loop that answers so; None where something else is done with the message."""
    written, into = reception.written, reception.into
    loop = written.loop_around(reception.call)
    if not isinstance(into, ast.Name) or loop is None or written.runs_over(into.id, reception.call) is not None:
        return None
    uses = [each for each in written.uses(into.id) if each is not into]
    inside = {id(node) for node in ast.walk(loop)}
    sends = [next(filter(_is_send, written.around(each)), None) for each in uses if id(each) in inside]
    if len({id(each) for each in sends}) != 1 or not isinstance(sends[0], ast.Call):
        return None
    return _line_of_answer(written, sends[0], into.id, uses)


def answered_as_counted(written: Written, uses: Sequence[ast.Name]) -> int | None:
    """The line of the one send in which each of `uses` of a message is answered, to a rank that is a count."""
    sends = [next(filter(_is_send, written.around(each)), None) for each in uses]
    if len({id(each) for each in sends}) != 1 or not isinstance(sends[0], ast.Call):
        return None
    return _line_of_answer(written, sends[0], uses[0].id, uses)


def _line_of_answer(written: Written, send: ast.Call, name: str, uses: Sequence[ast.Name]) -> int | None:
    """Of a `send` of what was made of the message in `name` to a rank that is a count."""
    content, target = _given(send, 0, "tensor"), _given(send, 1, "dst")
    if content is None or target is None or name not in names_in(content):
        return None
    if plain_copy_of(content) in uses:  # it is handed on as it came, to whomever: rows that are shuffled, say
        return None
    if any(isinstance(each, ast.Subscript) for each in ast.walk(content)):  # a part of it may say whose it is
        return None
    names = names_in(target)
    return send.lineno if names and names <= written.counted else None


def _is_send(node: ast.AST) -> bool:
    return name_called(node) in _SEND


def _given(call: ast.Call, at: int, name: str) -> ast.expr | None:
    named = [each.value for each in call.keywords if each.arg == name]
    return named[0] if named else call.args[at] if len(call.args) > at else None
