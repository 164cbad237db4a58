"""The one place in the user's source that sets a key, and which ranks can come there, as far as the source says."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis.calls.loops import is_in_a_loop
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.tree import function_around, tree_of
from rankdrill.diagnosis.stores.patterns import names_key, pattern_of
from rankdrill.diagnosis.stores.reached import Code, functions_from, own_nodes, speaks_of
from rankdrill.diagnosis.stores.source import SETTING
from rankdrill.step import Site

__all__ = ["Setter", "gone_by", "may_be_set", "only_setter"]

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_SIGNS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_PAST = (Order.AFTER, Order.APART)
# The rank in the world, however it is come by: not that of a node, or within a group.
_RANK = re.compile(r"(^|\.)_*((global|my|own|this|current|world)_)?rank(_id)?(\.index)?$|(^|\.)get_(global_)?rank\(\)$")
MOST_CALLERS = 4  # functions that call each other, one within the next
MOST_USES = 16  # of one function; of more than that nobody is told apart


@dataclass(frozen=True)
class Setter:
    """The line that sets a key, and the one rank that can come there."""

    site: Site
    rank: int


def only_setter(key: str, sites: Iterable[Site], size: int) -> Setter | None:
    """Where a program that was seen at `sites` sets the `key`, if that is one place, and one of `size` ranks can come.

    None too where a key is set that the source does not tell: it may be this one.
    """
    codes = functions_from(sites)
    found = [(code, call) for code in codes for call in _setting(code) if _may_be(call, key, code.file)]
    if len(found) != 1:
        return None
    code, call = found[0]
    ranks = _coming(code, call, codes, frozenset(range(size)), MOST_CALLERS)
    return Setter(Site(code.file, call.lineno, code.name or "<module>"), next(iter(ranks))) if len(ranks) == 1 else None


def may_be_set(key: str, sites: Iterable[Site]) -> bool:
    """Whether a program that was seen at `sites` has a line that may set `key`, as far as the source says."""
    return any(_may_be(call, key, code.file) for code in functions_from(sites) for call in _setting(code))


def gone_by(setter: Setter, site: Site | None) -> bool:
    """Whether a rank that is at `site` has gone past the line, and no loop brings it back."""
    while site is not None:
        function = function_around(site)
        there = [replace(site, line=line) for line in _lines_of(setter.site, site, function)] if function else []
        if there:
            return all(order_of(each, site) in _PAST for each in there) and not _comes_round(site)
        site = site.caller
    return False


def _lines_of(place: Site, site: Site, function: ast.AST) -> Iterator[int]:
    """The line of `function`, which `site` lies in, that is `place` or that calls the function it lies in."""
    if place.file == site.file and place.function == site.function:
        yield place.line
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and speaks_of(place.function, node.func):
            yield node.lineno


def _comes_round(site: Site) -> bool:
    outer: Site | None = site
    while outer is not None:
        if is_in_a_loop(outer):
            return True
        outer = outer.caller
    return False


def _setting(code: Code) -> Iterator[ast.Call]:
    """Calls that look as if they set a key of a store, which takes a value too: not those of sets and events."""
    for node in own_nodes(code.node):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[_, _, *_]) if name in SETTING:
                yield node


def _may_be(call: ast.Call, key: str, file: str) -> bool:
    pattern = pattern_of(call.args[0], tree_of(file))
    return pattern is None or names_key(pattern, key)


def _within(block: Iterable[ast.AST], node: ast.AST) -> bool:
    return any(below is node for part in block for below in ast.walk(part))


def _coming(code: Code, node: ast.AST, codes: Sequence[Code], ranks: frozenset[int], most: int) -> frozenset[int]:
    """Those of `ranks` that can come to `node` in `code`, from wherever in `codes` that is spoken of."""
    ranks = _let_through(code.node.body, node, ranks)
    if not code.name or not most:
        return ranks
    spoken = [
        (other, use)
        for other in codes
        if other.place != code.place
        for use in own_nodes(other.node)
        if speaks_of(code.name, use)
    ]
    if not 0 < len(spoken) <= MOST_USES:
        return ranks
    coming: frozenset[int] = frozenset()
    for other, use in spoken:
        coming |= _coming(other, use, codes, ranks, most - 1)
        if coming == ranks:
            break
    return coming


def _let_through(block: list[ast.stmt], node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
    """Those of `ranks` that come through `block` to `node`, by the conditions on ranks around it and before it."""
    for statement in block:
        if _within([statement], node):
            return _let_into(statement, node, ranks)
        if isinstance(statement, ast.If):
            if statement.body and isinstance(statement.body[-1], _LEAVES):
                ranks -= _those(statement.test, ranks, held=True, certain=True)
            if statement.orelse and isinstance(statement.orelse[-1], _LEAVES):
                ranks -= _those(statement.test, ranks, held=False, certain=True)
    return ranks


def _let_into(statement: ast.AST, node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
    for part in ("body", "orelse"):
        inner = getattr(statement, part, [])
        inner = inner if isinstance(inner, list) else [inner]
        if not _within(inner, node):
            continue
        if isinstance(statement, ast.If | ast.IfExp):
            ranks = _those(statement.test, ranks, held=part == "body", certain=False)
        return _let_through(inner, node, ranks)
    return next(
        (_let_into(child, node, ranks) for child in ast.iter_child_nodes(statement) if _within([child], node)), ranks
    )


def _those(test: ast.expr, ranks: frozenset[int], *, held: bool, certain: bool) -> frozenset[int]:
    """Those of `ranks` for which `test` may be `held`, or may not be; if `certain`, those for which that is so."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            if _RANK.search(ast.unparse(inner)):
                return frozenset(rank for rank in ranks if (rank == 0) is held)
            return _those(inner, ranks, held=not held, certain=certain)
        case ast.Compare(left=left, ops=[sign], comparators=[ast.Constant(value=int(number))]) if type(sign) in _SIGNS:
            if _RANK.search(ast.unparse(left)):
                return frozenset(rank for rank in ranks if _SIGNS[type(sign)](rank, number) is held)
        case ast.BoolOp(op=joint, values=parts):
            each = [_those(part, ranks, held=held, certain=certain) for part in parts]
            all_of = isinstance(joint, ast.And) is held
            return frozenset.intersection(*each) if all_of else frozenset().union(*each)
        case ast.Name() | ast.Attribute() | ast.Call() if _RANK.search(ast.unparse(test)):
            return frozenset(rank for rank in ranks if (rank != 0) is held)
    return frozenset() if certain else ranks
