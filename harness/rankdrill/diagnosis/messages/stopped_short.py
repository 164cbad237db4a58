"""A rank that returned short of a message: behind its last call its own source has the other half of what is left over.

Only what it would have come to counts: what stands under conditions that held for it before, in that run of the
function, and that nothing changes. Where another rank has returned from the same line, that is where ranks return.
"""

from __future__ import annotations

import ast
from collections import Counter
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
_CHANGES = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "get", "insert", "pop", "popitem", "popleft"),
        *("put", "remove", "set", "setdefault", "update"),
    }
)


def stopped_short_at(end: MessageEnd, views: Mapping[int, LedgerView], returned: Collection[int]) -> Site | None:
    """Where the peer of `end`, which has returned, would have come to the other half of it; None where nowhere."""
    if end.peer not in returned or end.peer not in views:
        return None
    last = last_call(views[end.peer])[1]
    function = function_around(last) if last is not None else None
    if last is None or function is None:
        return None
    if any(last_call(views[rank])[1] == last for rank in returned if rank != end.peer and rank in views):
        return None
    held = {told for line in _lines_beside(last, views[end.peer]) for told in _conditions(function, line)}
    held -= _changing(function)
    half = _RECEIVING if end.sends else _SENDING
    for line in sorted(lines_behind(half, last)):
        if _conditions(function, line) <= held and _fits(function, line, half, end):
            return replace(last, line=line, via="")
    return None


def _lines_beside(last: Site, view: LedgerView) -> set[int]:
    """Where the rank made calls in the function of `last`, called from the same lines."""
    sites = {record.step.site for record in view.where(lambda kind, state: kind is Kind.COLLECTIVE)}
    of_it = (last.file, last.function, last.caller)
    return {site.line for site in sites if site is not None and (site.file, site.function, site.caller) == of_it}


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
    """The conditions of what is bound anew, or changes in its place: they held one time, and may not the next."""
    bound = Counter(name for node in ast.walk(function) for name in _bound_by(node))
    in_loops = {name for loop in ast.walk(function) if isinstance(loop, LOOPS) for name in _bound_in(loop)}
    changed = {name for node in ast.walk(function) for name in _changed_by(node)} | in_loops
    changed |= {name for name, times in bound.items() if times > 1}
    asked = [node for node in ast.walk(function) if isinstance(node, ast.If | ast.While)]
    changing = {_asked(node) for node in asked if names_in(node.test) & changed}
    return {(told, part) for told in changing for part in ("body", "orelse", "test")}


def _bound_in(loop: ast.AST) -> Iterator[str]:
    for node in ast.walk(loop):
        yield from _bound_by(node)


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _changed_by(node: ast.AST) -> Iterator[str]:
    """What is a part of the user's own data is changed by a method, or by what is stored in it."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _CHANGES:
            yield name
        case (
            ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
            | ast.AugAssign(target=ast.Name(id=name))
        ):
            yield name


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
