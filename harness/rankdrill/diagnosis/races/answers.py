"""What follows from a message is sent to the next in a row of ranks, whoever it was that sent the message."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from rankdrill.diagnosis.calls.tree import tree_of
from rankdrill.diagnosis.races.reception import Reception
from rankdrill.diagnosis.races.written import Written, name_called, names_in, plain_copy_of

__all__ = ["answered_as_counted", "answered_as_filed", "answers_in_a_row"]

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


def answered_as_filed(reception: Reception, file: str) -> int | None:
    """The line of the one send of the function, or else of `file`, of what lies under a number, to the rank of that
    number, where each message goes under the number of its round: that of the worker whose turn it would be, and not of
    who has sent it.
    """
    written, into, tree = reception.written, reception.into, tree_of(file)
    loop = written.loop_around(reception.call)
    if tree is None or not isinstance(into, ast.Name) or not isinstance(loop, ast.For):
        return None
    if not isinstance(loop.target, ast.Name) or loop.target.id in _names_in_call(reception.call):
        return None
    inside = {id(node) for node in ast.walk(loop)}
    uses = [use for use in written.uses(into.id) if use is not into and not written.means_another(use, reception.call)]
    filed = {_filed_under(written, use, loop.target.id) for use in uses if id(use) in inside}
    if len(uses) != 1 or len(filed) != 1 or None in filed:
        return None
    lines = _lines_that_send(written.function, filed) or _lines_that_send(tree, filed)
    return lines[0] if len(lines) == 1 else None


def _lines_that_send(among: ast.AST, filed: Collection[str | None]) -> list[int]:
    sends = [node for node in ast.walk(among) if isinstance(node, ast.Call) and _is_send(node)]
    in_entries = [
        node.lineno
        for loop in ast.walk(among)
        if isinstance(loop, ast.For)
        for node in ast.walk(loop)
        if isinstance(node, ast.Call) and _is_send(node) and _sends_the_entry(node, loop, filed)
    ]
    return [*(send.lineno for send in sends if _sends_what_is_under(send, filed)), *in_entries]


def _sends_the_entry(send: ast.Call, loop: ast.For, filed: Collection[str | None]) -> bool:
    """Whether it sends what it makes of each entry of what is `filed`, in a loop over all, to the rank of its number;
    not where entries are handed on as they came, to whomever.
    """
    content, target = _given(send, 0, "tensor"), _given(send, 1, "dst")
    match loop:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=number), ast.Name(id=entry)]),
            iter=ast.Call(func=ast.Attribute(value=kept, attr="items")),
        ) if ast.unparse(kept) in filed and content is not None:
            made = not isinstance(plain_copy_of(content), ast.Name) and entry in names_in(content)
            return made and isinstance(target, ast.Name) and target.id == number
    return False


def _filed_under(written: Written, use: ast.Name, number: str) -> str | None:
    """What keeps it in a place of that `number`, by the statement that it is used in."""
    statement = next((each for each in written.around(use) if isinstance(each, ast.stmt)), None)
    places = [
        ast.unparse(node.value)
        for node in ast.walk(statement or use)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == number
    ]
    return places[0] if len(places) == 1 else None


def _sends_what_is_under(send: ast.Call, filed: Collection[str | None]) -> bool:
    content, target = _given(send, 0, "tensor"), _given(send, 1, "dst")
    return (
        isinstance(content, ast.Subscript)
        and isinstance(target, ast.Name)
        and ast.unparse(content.value) in filed
        and isinstance(content.slice, ast.Name)
        and content.slice.id == target.id
    )


def _names_in_call(call: ast.Call) -> set[str]:
    """What the receive itself goes by: who names its sender, or a tag for each, knows who it is."""
    return {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}


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
