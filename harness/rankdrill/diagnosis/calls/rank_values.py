"""What an expression of the user's is on a given rank, as far as the source says: numbers, names bound once, functions
that return what they reckon.

A rank may be come by in many ways; each name that says so is taken for the rank in the world, unless the source binds
it to something else. What cannot be told is `UNKNOWN`, and what is asked of it may hold or not.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from rankdrill.diagnosis.calls.tree import FUNCTIONS

__all__ = ["UNKNOWN", "Reading", "Unknown", "names_a_rank"]


class Unknown:
    """That the source does not tell a value."""

    def __bool__(self) -> bool:
        raise TypeError("what is not known is neither true nor false")


UNKNOWN: Final = Unknown()
MOST_STEPS = 8  # from a name to what it is bound to, to what that is bound to, and so on
MOST_ELEMENTS = 4096  # of what is asked whether it has the rank in it

# The rank in the world, however it is come by: not that of a node, or within a group.
_RANK = re.compile(
    r"(^|\.)_*((global|my|own|this|current|world)_)?rank(_id)?(\.index)?$"
    r"|(^|\.)get_(global_)?rank\(\)$|environ(\[|\.get\()'RANK'|getenv\('RANK'"
)
_SIZE = re.compile(
    r"(^|\.)_*((global|num|n)_)?(world_size|nranks|num_ranks|n_ranks)$"
    r"|(^|\.)get_world_size\(\)$|environ(\[|\.get\()'WORLD_SIZE'|getenv\('WORLD_SIZE'"
)
_MAIN = re.compile(
    r"(^|\.)_*(is_)?((main|master)_(process|rank)|rank_?(zero|0)|(global|process|world_process)_zero)(\(\))?$"
    r"|(^|\.)_*is_(main|master)(\(\))?$"
)
_SIGNS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: lambda value, held: value in held,
    ast.NotIn: lambda value, held: value not in held,
}
_SUMS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": abs, "bool": bool, "int": int, "len": len, "list": list, "max": max, "min": min, "range": range,
    "set": set, "sorted": sorted, "str": str, "tuple": tuple,
}  # fmt: skip


def names_a_rank(node: ast.expr) -> bool:
    """Whether it is written as the rank in the world is."""
    return bool(_RANK.search(ast.unparse(node)))


@dataclass(frozen=True, slots=True)
class Reading:
    """How `tree`, a file's source, reads on one of `size` ranks; nobody knows how many where that is None.

    `function` is the one that an expression stands in, and `given` what its parameters are known to be. If `plain`,
    only comparisons of a rank with one number are read: what most people write where one rank does something for all.
    """

    rank: int
    size: int | None = None
    tree: ast.Module | None = None
    function: ast.AST | None = None
    plain: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    steps: int = MOST_STEPS

    def holds(self, test: ast.expr) -> bool | None:
        """Whether `test` is true there; None where nobody can say."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                held = self.holds(inner)
                return None if held is None else not held
            case ast.BoolOp(op=joint, values=parts):
                return _joined(isinstance(joint, ast.And), [self.holds(part) for part in parts])
            case _ if self.plain and not _is_plain(test):
                return None
        value = self.value(test)
        return None if value is UNKNOWN else bool(value)

    def value(self, node: ast.expr) -> Any:
        """What `node` is there, else `UNKNOWN`."""
        try:
            return self._value(node)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return UNKNOWN  # it would be an error there too; or an operation of what is known that nobody reckons here

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return _of([self.value(inner)], operator.neg)
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                held = self.holds(node)
                return UNKNOWN if held is None else held
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SUMS:
                return _of([self.value(left), self.value(right)], _SUMS[type(sign)])
            case ast.Compare(left=left, ops=signs, comparators=others):
                return self._compared([left, *others], signs)
            case ast.IfExp(test=test, body=body, orelse=other):
                held = self.holds(test)
                return UNKNOWN if held is None else self.value(body if held else other)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return _of([self.value(each) for each in elements], lambda *known: known)
            case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call():
                return self._named(node)
        return UNKNOWN

    def _compared(self, values: list[ast.expr], signs: list[ast.cmpop]) -> Any:
        if any(type(sign) not in _SIGNS for sign in signs):
            return UNKNOWN
        known = [self.value(each) for each in values]
        pairs = zip(known, signs, known[1:], strict=False)
        each = [_of([mine, theirs], _SIGNS[type(sign)]) for mine, sign, theirs in pairs]
        held = _joined(True, [None if one is UNKNOWN else bool(one) for one in each])
        return UNKNOWN if held is None else held

    # ------------------------------------------------------------------------------------------- names

    def _named(self, node: ast.Name | ast.Attribute | ast.Subscript | ast.Call) -> Any:
        bound = self._bound_to(node)
        if bound is not UNKNOWN and not isinstance(bound, _Nothing):
            return bound
        if isinstance(bound, _Nothing):  # what the source says nothing of is what it is called
            said = ast.unparse(node)
            if _RANK.search(said):
                return self.rank
            if _SIZE.search(said):
                return self.size if self.size is not None else UNKNOWN
            called = self._called(node) if isinstance(node, ast.Call) else UNKNOWN
            return self.rank == 0 if called is UNKNOWN and not self.plain and _MAIN.search(said) else called
        return UNKNOWN

    def _bound_to(self, node: ast.expr) -> Any:
        """What the source binds the name to; `_Nothing` where that says nothing against what it is called."""
        if self.plain or not isinstance(node, ast.Name | ast.Attribute) or not self.steps:
            return _NOTHING
        name = node.id if isinstance(node, ast.Name) else node.attr
        if isinstance(node, ast.Name) and name in self.given:
            return self.given[name]
        bound, within = self._bindings(node, name)
        if not bound:
            return _NOTHING
        values = [UNKNOWN if value is None else replace(within, steps=self.steps - 1).value(value) for value in bound]
        first = values[0]
        if first is not UNKNOWN and all(each is not UNKNOWN and each == first for each in values):
            return first
        # `rank = launch(...)` is a rank, and what a loop goes through, or is a rank of a group, is not this one.
        return _NOTHING if len(bound) == 1 and bound[0] is not None and not _is_within_a_group(bound[0]) else UNKNOWN

    def _bindings(self, node: ast.Name | ast.Attribute, name: str) -> tuple[list[ast.expr | None], Reading]:
        """All that it is bound to, None what is not told; and how that reads."""
        if isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            found = _attributes(self.tree).get(name, []) if mine and self.tree is not None else []
            return [value for value, _ in found], self._in(found[0][1] if len(found) == 1 else None)
        if self.function is not None and not isinstance(self.function, ast.Module):
            own = _names(self.function).get(name, [])
            if own or name in _parameters(self.function):
                return own, self
        return (_names(self.tree).get(name, []) if self.tree is not None else []), self._in(None)

    def _in(self, function: ast.AST | None) -> Reading:
        return replace(self, function=function, given={})

    def _called(self, call: ast.Call) -> Any:
        """What a builtin makes of what is known, or a function of the file that does nothing but return a value."""
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if self.plain or not self.steps or call.keywords or any(isinstance(each, ast.Starred) for each in call.args):
            return UNKNOWN
        if isinstance(call.func, ast.Name) and name in _BUILTINS:
            known = [self.value(each) for each in call.args]
            if any(isinstance(each, int) and abs(each) > MOST_ELEMENTS for each in known) and name == "range":
                return UNKNOWN
            return _of(known, _BUILTINS[name])
        functions = _functions(self.tree).get(name, []) if self.tree is not None else []
        if len(functions) != 1 or (returned := _returned(functions[0])) is None:
            return UNKNOWN
        parameters = [each.arg for each in functions[0].args.args]
        if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
            del parameters[0]
        given = dict(zip(parameters, map(self.value, call.args), strict=False))
        within = replace(self, function=functions[0], steps=self.steps - 1)
        return replace(within, given={name: value for name, value in given.items() if value is not UNKNOWN}).value(
            returned
        )


class _Nothing:
    """That nothing is bound to a name, as far as the source tells."""


_NOTHING: Final = _Nothing()


def _of(values: list[Any], reckon: Callable[..., Any]) -> Any:
    return UNKNOWN if any(each is UNKNOWN for each in values) else reckon(*values)


def _joined(all_of: bool, parts: list[bool | None]) -> bool | None:
    """Three-valued ``and``, or ``or``: one part that decides is enough, whatever the others are."""
    if (not all_of) in parts:
        return not all_of
    return None if None in parts else all_of


def _is_plain(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[sign], comparators=[ast.Constant(value=int())]):
            return type(sign) in _SIGNS and names_a_rank(left)
        case ast.Name() | ast.Attribute() | ast.Call():
            return names_a_rank(test)
    return False


def _is_within_a_group(value: ast.expr) -> bool:
    """Whether it asks for the rank within a group that it names: that is another number."""
    called = value.func if isinstance(value, ast.Call) else None
    name = getattr(called, "attr", getattr(called, "id", ""))
    groups = name in ("get_rank", "get_group_rank", "get_local_rank", "get_world_size")
    return isinstance(value, ast.Call) and groups and bool(value.args or value.keywords or name == "get_local_rank")


@lru_cache(maxsize=64)
def _names(scope: ast.AST) -> dict[str, list[ast.expr | None]]:
    """What names are bound to in `scope`, not in functions in it; None where no assignment tells it."""
    nodes = list(_own(scope))
    told = [pair for node in nodes for pair in _assigned(node)]
    found: dict[str, list[ast.expr | None]] = {}
    for target, value in told:
        if isinstance(target, ast.Name):
            found.setdefault(target.id, []).append(value)
    by_assignment = {id(target) for target, _ in told}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(node) not in by_assignment:
                found.setdefault(name, []).append(None)
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                found.setdefault(name, []).append(None)
    return found


@lru_cache(maxsize=16)
def _attributes(tree: ast.Module) -> dict[str, list[tuple[ast.expr | None, ast.AST | None]]]:
    """What `self`'s attributes are bound to anywhere in the file, and in which function."""
    found: dict[str, list[tuple[ast.expr | None, ast.AST | None]]] = {}
    for function in ast.walk(tree):
        if not isinstance(function, FUNCTIONS):
            continue
        told = [pair for node in _own(function) for pair in _assigned(node)]
        values = {id(target): value for target, value in told}
        for node in _own(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.attr, []).append((values.get(id(node)), function))
        if isinstance(function, ast.FunctionDef) and any("property" in ast.unparse(d) for d in function.decorator_list):
            found.setdefault(function.name, []).append((_returned(function), function))
    return found


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What an assignment binds, each to what."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _parts(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield target, value


def _parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    elif isinstance(target, ast.Name | ast.Attribute):
        yield target, value


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What lies in `scope`, but not in functions in it."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            yield from _own(child)


@lru_cache(maxsize=64)
def _parameters(function: ast.AST) -> frozenset[str]:
    return frozenset(each.arg for each in ast.walk(function) if isinstance(each, ast.arg))


@lru_cache(maxsize=16)
def _functions(tree: ast.Module) -> dict[str, list[ast.FunctionDef]]:
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    """What it returns, if it does nothing else but bind names to it."""
    *before, last = function.body
    simple = all(isinstance(each, ast.Assign | ast.AnnAssign) or _is_a_docstring(each) for each in before)
    return last.value if simple and isinstance(last, ast.Return) else None


def _is_a_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
