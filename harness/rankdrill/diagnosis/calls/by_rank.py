"""Which ranks come to a line, by the conditions around it and before it, as far as the source says what these are."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from rankdrill.diagnosis.calls.rank_values import Reading
from rankdrill.diagnosis.calls.tree import calls_at, function_around, tree_of
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["Asked", "may_come", "named_to_come"]

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def may_come(site: Site, ranks: Iterable[int], size: int | None = None, *, plain: bool = False) -> frozenset[int]:
    """Those of `ranks` that may come to `site`, by its own function and those that led there: all if nobody asks.

    `size` is that of the world. What would keep all away keeps nobody: it means something else than it seems. If
    `plain`, only comparisons of the rank with one number count.
    """
    found = frozenset(ranks)
    for each in outward(site):
        function = function_around(each)
        calls = calls_at(function, each.line) if function is not None else []
        if calls and function is not None and isinstance(body := getattr(function, "body", None), list):
            asked = Asked(size, tree_of(each.file), function, plain)
            found = asked.let_through(body, calls[0], found) or found
    return found


def named_to_come(site: Site, ranks: Iterable[int], size: int | None = None) -> frozenset[int]:
    """Those of `ranks` that conditions around `site` let come there, where they keep others away; else nobody."""
    every = frozenset(ranks)
    found = may_come(site, every, size)
    return found if found != every else frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """The conditions in a `function` of the file `tree`, asked on ranks of a world of `size`."""

    size: int | None
    tree: ast.Module | None
    function: ast.AST
    plain: bool = False

    def let_through(self, block: list[ast.stmt], node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
        """Those of `ranks` that come through `block` to `node`, by the conditions around it and before it."""
        for statement in block:
            if _within([statement], node):
                return self._let_into(statement, node, ranks)
            if isinstance(statement, ast.If):
                if statement.body and isinstance(statement.body[-1], _LEAVES):
                    ranks -= self._those(statement.test, ranks, held=True, certain=True)
                if statement.orelse and isinstance(statement.orelse[-1], _LEAVES):
                    ranks -= self._those(statement.test, ranks, held=False, certain=True)
        return ranks

    def _let_into(self, statement: ast.AST, node: ast.AST, ranks: frozenset[int]) -> frozenset[int]:
        for part in ("body", "orelse"):
            inner = getattr(statement, part, [])
            inner = inner if isinstance(inner, list) else [inner]
            if not _within(inner, node):
                continue
            if isinstance(statement, ast.If | ast.IfExp):
                ranks = self._those(statement.test, ranks, held=part == "body", certain=False)
            return self.let_through(inner, node, ranks)
        return next(
            (self._let_into(child, node, ranks) for child in ast.iter_child_nodes(statement) if _within([child], node)),
            ranks,
        )

    def _those(self, test: ast.expr, ranks: frozenset[int], *, held: bool, certain: bool) -> frozenset[int]:
        """Those of `ranks` for which `test` may be `held`, or may not be; if `certain`, those for which that is so."""
        wrong = {None, not held} if certain else {not held}
        return frozenset(rank for rank in ranks if self._on(rank).holds(test) not in wrong)

    def _on(self, rank: int) -> Reading:
        return Reading(rank, self.size, self.tree, self.function, self.plain)


def _within(block: Iterable[ast.AST], node: ast.AST) -> bool:
    return any(below is node for part in block for below in ast.walk(part))
