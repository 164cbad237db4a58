"""A rank that returned short of a message: behind its last call its own source has the other half of what is left over.

Only what it would have come to counts: what stands under conditions that held for it in that function before, and that
no round of a loop changes.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from rankdrill.diagnosis.calls.source import lines_behind
from rankdrill.diagnosis.calls.tree import LOOPS, calls_at, function_around, name_called, names_in, path_to
from rankdrill.diagnosis.messages.traffic import MessageEnd
from rankdrill.diagnosis.messages.words import last_call
from rankdrill.ledger import LedgerView
from rankdrill.step import Kind, Site

__all__ = ["stopped_short_at"]

_SENDING = frozenset({"send", "isend"})
_RECEIVING = frozenset({"recv", "irecv"})
_PEERS = ("dst", "src")


def stopped_short_at(end: MessageEnd, views: Mapping[int, LedgerView], returned: Collection[int]) -> Site | None:
    """Where the peer of `end`, which has returned, would have come to the other half of it; None where nowhere."""
    if end.peer not in returned or end.peer not in views:
        return None
    last = last_call(views[end.peer])[1]
    function = function_around(last) if last is not None else None
    if last is None or function is None:
        return None
    held = {told for line in _lines_in(function, views[end.peer]) for told in _conditions(function, line)}
    half = _RECEIVING if end.sends else _SENDING
    for line in sorted(lines_behind(half, last)):
        if _conditions(function, line) <= held - _changing(function) and _fits(function, line, half, end):
            return replace(last, line=line, via="")
    return None


def _lines_in(function: ast.AST, view: LedgerView) -> set[int]:
    """Where in `function` the rank made calls."""
    sites = {record.step.site for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE)}
    return {site.line for site in sites if site is not None and function_around(site) is function}


def _conditions(function: ast.AST, line: int) -> set[tuple[str, str]]:
    """What held for a rank that is in that line, as it is written, and which way it was to go: a loop's head, too."""
    return {(_asked(node), part) for node, part in path_to(function, line) if _asked(node)}


def _asked(node: ast.AST) -> str:
    match node:
        case ast.If(test=asked) | ast.While(test=asked) | ast.For(iter=asked) | ast.AsyncFor(iter=asked):
            return ast.unparse(asked)
        case ast.Try() | ast.Match() | ast.IfExp() | ast.BoolOp():
            return f"line {node.lineno}"  # this very one
    return ""


def _changing(function: ast.AST) -> set[tuple[str, str]]:
    """The conditions of what is bound in a loop: they held one time, and do not the next."""
    loops = [node for node in ast.walk(function) if isinstance(node, LOOPS)]
    bound = {name for loop in loops for name in _bound_in(loop)}
    asked = [node for node in ast.walk(function) if isinstance(node, ast.If | ast.While)]
    changing = {_asked(node) for node in asked if names_in(node.test) & bound}
    return {(told, part) for told in changing for part in ("body", "orelse", "test")}


def _bound_in(loop: ast.AST) -> Iterator[str]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _fits(function: ast.AST, line: int, half: Collection[str], end: MessageEnd) -> bool:
    """Whether the one call in that line may be the other half: what it says in figures is right for that."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == line]
    found = [node for node in calls if name_called(node) in half]
    return len(found) == 1 and len(calls_at(function, line)) == 1 and _says(found[0], end)


def _says(call: ast.Call, end: MessageEnd) -> bool:
    named = {each.arg: each.value for each in call.keywords if each.arg is not None}
    peer = next((named[name] for name in _PEERS if name in named), call.args[1] if len(call.args) > 1 else None)
    tag = named.get("tag", ast.Constant(0))
    wanted = ((peer, end.rank), (tag, end.stream.tag))
    return all(not isinstance(said, ast.Constant) or said.value == value for said, value in wanted)
