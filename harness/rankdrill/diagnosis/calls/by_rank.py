"""Which ranks come to a line, by the conditions around it and before it, as far as the source says what these are."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rankdrill.diagnosis.calls.asking import asks_for_the_rank, names_ranks
from rankdrill.diagnosis.calls.rank_values import Reading
from rankdrill.diagnosis.calls.tree import calls_at, function_around, tree_of
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["Asked", "may_come", "named_to_come"]

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def may_come(site: Site, ranks: Iterable[int], size: int | None = None, *, plain: bool = False) -> frozenset[int]:
    """Those of `ranks` that may come to `site`, by its own function and those that led there: all if nobody asks.

    `size` is that of the world. If `plain`, only comparisons of the rank with one number count.
    """
    found = frozenset(ranks)
    for each in outward(site):
        function = function_around(each)
        calls = calls_at(function, each.line) if function is not None else []
        if calls and function is not None and isinstance(body := getattr(function, "body", None), list):
            asked = Asked(size, tree_of(each.file), function, plain)
            found = asked.let_through(body, calls[0], found)
    return found


def named_to_come(site: Site, ranks: Iterable[int], size: int | None = None) -> frozenset[int]:
    """Those of `ranks` that a condition around `site` names, and lets come there: all if none does. Who is only kept
    away, as by ``!=``, may have been so by mistake.
    """
    function, tree = function_around(site), tree_of(site.file)
    calls = calls_at(function, site.line) if function is not None else []
    found = frozenset(ranks)
    if function is None or tree is None or not calls or not isinstance(body := getattr(function, "body", None), list):
        return found
    asked = Asked(size, tree, function)
    for each in _way(body, calls[0]):
        if each.around and each.held and asks_for_the_rank(each.test, tree) and names_ranks(each.test, tree):
            found = asked.those(each.test, found, held=True) or found
    return found


@dataclass(frozen=True, slots=True)
class Asked:
    """The conditions in a `function` of the file `tree`, asked on ranks of a world of `size`."""

    size: int | None
    tree: ast.Module | None
    function: ast.AST
    plain: bool = False

    def let_through(self, block: list[ast.stmt], node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
        """Those of `ranks` that come through `block` to `node`, by the conditions around it, and by those before it
        that end in a return or the like. What would keep all of them away keeps nobody.
        """
        way = list(_way(block, node))
        for each in way:
            if each.around:
                ranks = self.those(each.test, ranks, held=each.held) or ranks
        for each in way:
            if not each.around:
                ranks = ranks - self.those(each.test, ranks, held=each.held, certain=True) or ranks
        return ranks

    def those(self, test: ast.expr, ranks: frozenset[int], *, held: bool, certain: bool = False) -> frozenset[int]:
        """Those of `ranks` for which `test` may be `held`, or may not be; if `certain`, those for which that is so."""
        wrong = {None, not held} if certain else {not held}
        return frozenset(rank for rank in ranks if self._on(rank).holds(test) not in wrong)

    def _on(self, rank: int) -> Reading:
        return Reading(rank, self.size, self.tree, self.function, self.plain)


@dataclass(frozen=True, slots=True)
class _Condition:
    """A `test` on the way to a line: if `around` it, it is to be `held` by whoever comes; else who has it so leaves."""

    test: ast.expr
    held: bool
    around: bool


def _way(block: Iterable[ast.AST], node: ast.AST) -> Iterator[_Condition]:
    """The conditions on the way through `block` to `node`."""
    for statement in block:
        if _within([statement], node):
            yield from _way_into(statement, node)
            return
        if isinstance(statement, ast.If):
            for part, held in ((statement.body, True), (statement.orelse, False)):
                if part and isinstance(part[-1], _LEAVES):
                    yield _Condition(statement.test, held, around=False)


def _way_into(statement: ast.AST, node: ast.AST) -> Iterator[_Condition]:
    for part in ("body", "orelse"):
        inner = getattr(statement, part, [])
        inner = inner if isinstance(inner, list) else [inner]
        if _within(inner, node):
            if isinstance(statement, ast.If | ast.IfExp):
                yield from (_Condition(*each, around=True) for each in _parts(statement.test, part == "body"))
            yield from _way(inner, node)
            return
    for child in ast.iter_child_nodes(statement):
        if _within([child], node):
            yield from _way_into(child, node)
            return


def _parts(test: ast.expr, held: bool) -> Iterator[tuple[ast.expr, bool]]:
    """What must be so, each by itself, for `test` to be `held`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _parts(inner, not held)
        case ast.BoolOp(op=joint, values=parts) if isinstance(joint, ast.And) is held:
            for part in parts:
                yield from _parts(part, held)
        case _:
            yield test, held


def _within(block: Iterable[ast.AST], node: ast.AST) -> bool:
    return any(below is node for part in block for below in ast.walk(part))
