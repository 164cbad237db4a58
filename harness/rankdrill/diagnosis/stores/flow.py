"""Whether what a rank sets in a store follows from what it got there before, as far as the user's source says.

The two may stand in one function, or in helpers of one: what a helper got comes out of it by ``return``, or as an
attribute of its object; what it sets goes in as an argument, or as such an attribute.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from rankdrill.diagnosis.calls.tree import function_around, name_called, tree_of
from rankdrill.diagnosis.stores.changes import SWAP
from rankdrill.diagnosis.stores.patterns import names_key, pattern_of
from rankdrill.step import Site

__all__ = ["counts_up", "depends_on", "goes_by"]

_MORE = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)
_CONDITIONS = (ast.If, ast.While, ast.IfExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FILLING = frozenset({"append", "extend", "update"})  # with one argument: a store's own take two
_SELF = "self."
_PROPERTIES = ("property", ".setter")
# An add of nothing asks for a counter.
_GETS, _SETS = frozenset({"get", "multi_get", "check", "add"}), frozenset({"set", "multi_set", SWAP})
MOST_ROUNDS = 8  # of following names from one assignment to the next
MOST_KNOWN = 1 << 8  # pairs of lines: a loop asks of one again and again


@dataclass(frozen=True)
class _Level:
    """One function on the way: what was got is there what `call` gives, and what `names` hold.

    `asked` is what it hands on: returns, or sets.
    """

    function: ast.AST
    call: ast.expr | None
    names: frozenset[str]
    asked: tuple[ast.AST, ...] = field(default=())

    def uses(self, part: ast.AST) -> bool:
        return _uses(part, self.call, self.names)

    def hands_on(self) -> bool:
        return any(map(self.uses, self.asked))


@lru_cache(maxsize=MOST_KNOWN)
def depends_on(got: Site, put: Site, *, value: bool = False, key: str = "") -> bool:
    """Whether what is set at `put`, of several values that of `key`, follows from what was got at `got`.

    Unless it is the `value` that matters, that it is set at all may do so too.
    """
    levels = _levels(got, put, value=value, key=key)
    return bool(levels) and levels[-1].hands_on()


@lru_cache(maxsize=MOST_KNOWN)
def counts_up(got: Site, put: Site, *, key: str = "") -> bool:
    """Whether what is set at `put` is what was got at `got` and something more: done twice, it comes to more."""
    levels = _levels(got, put, value=True, key=key)
    return bool(levels) and levels[-1].hands_on() and any(map(_grows, levels))


@lru_cache(maxsize=MOST_KNOWN)
def goes_by(got: Site, put: Site, *, key: str = "") -> bool:
    """Whether something on the way is done only if what was got at `got` is so; also where that cannot be said."""
    levels = _levels(got, put, value=True, key=key)
    tests = ((level, test) for level in levels for test in _tests(level.function))
    return not levels or any(level.uses(test) for level, test in tests)


# ------------------------------------------------------------------------------------- from function to function


def _levels(got: Site, put: Site, *, value: bool, key: str) -> list[_Level]:
    """From where it was got out to the function that both lie in, the last; nothing where that cannot be said."""
    for at, mine in enumerate(outward := list(_outward(got))):
        function = function_around(mine)
        way: list[Site] = []
        for theirs in _outward(put):
            way.append(theirs)
            if function is not None and function is function_around(theirs):
                asked = _asked(way, value=value, key=key)
                return _out_of(outward[: at + 1], asked) if asked is not None else []
    return []


def _out_of(way: Sequence[Site], asked: Sequence[ast.AST]) -> list[_Level]:
    """What is had of what was got, function by function; the outermost hands on what is `asked`."""
    function = function_around(way[0])
    call: ast.expr | None = _the_call(function, _GETS, way[0].line)
    seeds: frozenset[str] = frozenset()
    levels: list[_Level] = []
    if function is None or call is None:
        return []
    for inner, outer in pairwise(way):
        within = _level(function, call, seeds, _returned(function))
        levels.append(within)
        function = function_around(outer)
        called = _the_call(function, {inner.function}, outer.line) or _the_property(function, inner, outer.line)
        if function is None or called is None:
            return []
        seeds = frozenset(_attribute(called, name) for name in within.names if name.startswith(_SELF)) - {""}
        call = called if within.hands_on() else None
        if call is None and not seeds:
            return []
    return [*levels, _level(function, call, seeds, asked)]


def _asked(way: Sequence[Site], *, value: bool, key: str) -> list[ast.AST] | None:
    """What is set, in words of the outermost function of `way`; unless `value`, also under which conditions."""
    function = function_around(way[0])
    call = _the_call(function, _SETS, way[0].line)
    if function is None or call is None:
        return None
    asked = list(_values(call, key, tree_of(way[0].file)))
    for at, site in enumerate(way):
        if not value:
            asked += [node.test for node in _conditions_around(function, call)]
        if at + 1 == len(way):
            break
        needed = _needed(function, asked)
        inner, function = function, function_around(way[at + 1])
        attribute = _the_property(function, site, way[at + 1].line)
        if function is not None and attribute is not None and at + 2 == len(way):
            return _assigned_to(function, attribute)
        call = _the_call(function, {site.function}, way[at + 1].line)
        if function is None or call is None or any(isinstance(given, ast.Starred) for given in call.args):
            return None
        asked = list(_handed(inner, call, needed))
    return asked


def _values(call: ast.Call, key: str, tree: ast.Module | None) -> Iterator[ast.AST]:
    """What `call` sets; where keys and values are written side by side, what may be that of `key`."""
    match call.args:
        case [_, _, desired] if name_called(call) == SWAP:
            yield desired
        case [ast.List(elts=keys), ast.List(elts=values)] if key and len(keys) == len(values):
            patterns = [(pattern_of(name, tree), value) for name, value in zip(keys, values, strict=True)]
            named = [value for pattern, value in patterns if pattern is not None and names_key(pattern, key)]
            yield from named or [value for pattern, value in patterns if pattern is None]
        case _:
            yield from call.args[1:]
            yield from (given.value for given in call.keywords if given.arg != "key")


def _needed(function: ast.AST, asked: Iterable[ast.AST]) -> set[str]:
    """The parameters and own attributes that `asked` follows from."""
    asked = list(asked)
    own = {ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    known = {*_parameters(function), *(name for name in own if name.startswith(_SELF))}
    return {name for name in known if _level(function, None, frozenset({name}), asked).hands_on()}


def _handed(inner: ast.AST, call: ast.Call, needed: set[str]) -> Iterator[ast.AST]:
    """What `call` hands to the function `inner` of what is `needed` there."""
    parameters = _parameters(inner)
    if parameters[:1] == ["self"] and isinstance(call.func, ast.Attribute):
        del parameters[0]
    for name, given in zip(parameters, call.args, strict=False):
        if name in needed:
            yield given
    yield from (given.value for given in call.keywords if given.arg in needed)
    for name in needed:
        if name.startswith(_SELF) and (text := _attribute(call, name)):
            yield ast.parse(text, mode="eval").body


def _attribute(call: ast.expr, name: str) -> str:
    """What ``self.items`` is called where the method is `called`, or a property read; empty where it is no method."""
    method = call.func if isinstance(call, ast.Call) else call
    return f"{ast.unparse(method.value)}.{name.removeprefix(_SELF)}" if isinstance(method, ast.Attribute) else ""


def _parameters(function: ast.AST) -> list[str]:
    if not isinstance(function, _FUNCTIONS):
        return []
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _the_call(function: ast.AST | None, names: Set[str], line: int) -> ast.Call | None:
    """The call of one of `names` in that line; None where there is not just one."""
    if function is None:
        return None
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and not {getattr(node.func, "attr", ""), getattr(node.func, "id", "")}.isdisjoint(names)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return calls[0] if len(calls) == 1 else None


def _the_property(function: ast.AST | None, inner: Site, line: int) -> ast.Attribute | None:
    """The attribute in that line by which the property `inner` is read, or set; None where there is not just one."""
    own = function_around(inner)
    if function is None or not isinstance(own, _FUNCTIONS):
        return None
    if not any(ast.unparse(each).endswith(_PROPERTIES) for each in own.decorator_list):
        return None
    found = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and node.attr == inner.function
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return found[0] if len(found) == 1 else None


def _assigned_to(function: ast.AST, attribute: ast.Attribute) -> list[ast.AST] | None:
    """What is assigned to it; of ``seen += 1`` what it was, too."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[target], value=value) if target is attribute:
                return [value]
            case ast.AugAssign(target=target, value=value) if target is attribute:
                return [target, value]
    return None


def _outward(site: Site) -> Iterator[Site]:
    outer: Site | None = site
    while outer is not None:
        yield outer
        outer = outer.caller


# --------------------------------------------------------------------------------------------- in one function


def _level(function: ast.AST, call: ast.expr | None, seeds: frozenset[str], asked: Sequence[ast.AST]) -> _Level:
    """With the names of what holds what `call` gave or `seeds` hold, or something made of it."""
    names = set(seeds)
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
    return _Level(function, call, frozenset(names), tuple(asked))


def _grows(level: _Level) -> bool:
    made = [*level.asked]
    for value, targets in _assignments(level.function):
        if any(name in level.names for target in targets for name in _stored(target)):
            made.append(value)
    added = (node for part in made for node in ast.walk(part) if isinstance(node, ast.BinOp))
    sums = (node for node in added if isinstance(node.op, _MORE) and level.uses(node))
    steps = (node for node in ast.walk(level.function) if isinstance(node, ast.AugAssign))
    grown = [node for node in steps if isinstance(node.op, _MORE)]
    if any(node.target is level.call for node in grown):  # a property
        return True
    return any(sums) or any(name in level.names for node in grown for name in _stored(node.target))


def _returned(function: ast.AST) -> list[ast.AST]:
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]


def _tests(function: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                yield test
            case ast.Match(subject=subject):
                yield subject
            case ast.comprehension(ifs=tests):
                yield from tests


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


def _uses(part: ast.AST, call: ast.expr | None, names: Iterable[str]) -> bool:
    return any(
        node is call or (isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names)
        for node in ast.walk(part)
    )
