"""What the user's source says of keys: which are set further down, and whether what is set depends on what was got."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from rankdrill.diagnosis.calls.source import Order, function_around, order_of, share_a_loop
from rankdrill.step import Site

__all__ = ["asks_again", "counts_up", "depends_on", "sets_later"]

_SETTING = frozenset({"add", "append", "compare_set", "multi_set", "queue_push", "set"})
_MORE = (ast.Add, ast.Sub, ast.Mult)
_CONDITIONS = (ast.If, ast.While, ast.IfExp)
_RANK = re.compile(r"rank|index", re.IGNORECASE)
_FILLING = frozenset({"append", "extend", "update"})  # with one argument: a store's own take two
MOST_ROUNDS = 8  # of following names from one assignment to the next


def sets_later(rank: int, site: Site, key: str) -> bool:
    """Whether `rank`, which is at `site`, may set `key` further on in the same function."""
    function = function_around(site)
    if function is None:
        return False
    calls = [call for call in _calls(function, _SETTING) if call.args and _may_be(call.args[0], key)]
    lines = {call.lineno for call in calls if _is_for(rank, call, function)}
    return any(_comes(site, replace(site, line=line)) for line in lines - {site.line})


def _is_for(rank: int, call: ast.Call, function: ast.AST) -> bool:
    """Whether no condition around `call` keeps this rank from it: those that compare a rank with a number are known."""
    for node in _conditions_around(function, call):
        match node.test:
            case ast.Compare(left=left, ops=[sign], comparators=[ast.Constant(value=int(who))]):
                equal = {ast.Eq: who == rank, ast.NotEq: who != rank}.get(type(sign))
                if equal is not None and _RANK.search(ast.unparse(left)) and _in_body(node, call) != equal:
                    return False
    return True


def _in_body(node: ast.If | ast.While | ast.IfExp, call: ast.Call) -> bool:
    body = node.body if isinstance(node.body, list) else [node.body]
    return any(below is call for part in body for below in ast.walk(part))


def asks_again(site: Site) -> bool:
    """Whether a loop asks at `site` until something is so; also where that cannot be said."""
    function = function_around(site)
    if function is None:
        return True
    loops = [node for node in ast.walk(function) if isinstance(node, ast.While)]
    return any(loop.lineno <= site.line <= (loop.end_lineno or loop.lineno) for loop in loops)


def depends_on(got: Site, put: Site, *, value: bool = False) -> bool:
    """Whether what is set at `put` follows from what was got at `got`, in the same function.

    Unless it is the `value` that matters, that it is set at all may do so too.
    """
    found = _get_and_set(got, put)
    if found is None:
        return False
    function, get, put_call = found
    names = _names_from(function, get)
    conditions = () if value else _conditions_around(function, put_call)
    asked = [*put_call.args[1:], *(node.test for node in conditions)]
    return any(_uses(part, get, names) for part in asked)


def _get_and_set(got: Site, put: Site) -> tuple[ast.AST, ast.Call, ast.Call] | None:
    """The function that both are in, and the two calls; None where that is not one of each."""
    function = function_around(got)
    if function is None or function is not function_around(put):
        return None
    gets = [call for call in _calls(function, {"get", "check"}) if _spans(call, got.line)]
    sets = [call for call in _calls(function, {"set"}) if _spans(call, put.line)]
    return (function, gets[0], sets[0]) if len(gets) == len(sets) == 1 else None


def counts_up(got: Site, put: Site) -> bool:
    """Whether what is set at `put` is what was got at `got` and something more: done twice, it comes to more."""
    found = _get_and_set(got, put)
    if found is None:
        return False
    function, get, put_call = found
    names = _names_from(function, get)
    if not any(_uses(part, get, names) for part in put_call.args[1:]):
        return False
    made: list[ast.AST] = [*put_call.args[1:]]
    for value, targets in _assignments(function):
        if any(name in names for target in targets for name in _stored(target)):
            made.append(value)
    added = (node for part in made for node in ast.walk(part) if isinstance(node, ast.BinOp))
    sums = (node for node in added if isinstance(node.op, _MORE) and _uses(node, get, names))
    grown = (node for node in ast.walk(function) if isinstance(node, ast.AugAssign) and isinstance(node.op, _MORE))
    return any(sums) or any(name in names for node in grown for name in _stored(node.target))


def _comes(site: Site, other: Site) -> bool:
    order = order_of(site, other)
    return order is Order.AFTER or (order is Order.BEFORE and share_a_loop(site, other))


def _calls(function: ast.AST, names: frozenset[str] | set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node


def _may_be(given: ast.expr, key: str) -> bool:
    """Whether the key that is `given` there may be `key`, or its end: prefixes go before it."""
    match given:
        case ast.Constant(value=str(text)):
            pattern = re.escape(text)
        case ast.JoinedStr(values=parts):
            pattern = "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts)
        case _:
            return False
    return re.search(f"(^|[/…]){pattern}$", key) is not None


def _spans(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _names_from(function: ast.AST, call: ast.Call) -> set[str]:
    """What holds what `call` gave, or something made of it."""
    names: set[str] = set()
    for _ in range(MOST_ROUNDS):
        found = {
            name
            for value, targets in _assignments(function)
            if _uses(value, call, names)
            for target in targets
            for name in _stored(target)
        }
        if found <= names:
            break
        names |= found
    return names


def _assignments(function: ast.AST) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(value=value, targets=targets):
                yield value, targets
            case ast.AugAssign(value=value, target=target) | ast.NamedExpr(value=value, target=target):
                yield value, [target]
            case ast.AnnAssign(value=ast.expr() as value, target=target):
                yield value, [target]
            case ast.For(iter=value, target=target):
                yield value, [target]
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[given]) if method in _FILLING:
                yield given, [owner]


def _stored(target: ast.expr) -> Iterator[str]:
    """What is assigned to, or into: of ``seen[key]`` the ``seen``, of ``self.seen`` that."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _stored(part)
        case ast.Subscript(value=within) | ast.Starred(value=within):
            yield from _stored(within)
        case ast.Name() | ast.Attribute():
            yield ast.unparse(target)


def _conditions_around(function: ast.AST, call: ast.Call) -> Iterator[ast.If | ast.While | ast.IfExp]:
    for node in ast.walk(function):
        if isinstance(node, _CONDITIONS) and any(below is call for below in ast.walk(node)):
            yield node


def _uses(part: ast.AST, call: ast.Call, names: set[str]) -> bool:
    return any(
        node is call or (isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names)
        for node in ast.walk(part)
    )
