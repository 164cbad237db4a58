"""What the user's source says of keys: which are set further down, and which are asked for again and again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.rank_values import Reading
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.tree import LOOPS, calls_at, function_around, name_called, names_in, tree_of
from rankdrill.diagnosis.stores.helpers import SETTING, handed_to, keys_set_by, setting_calls
from rankdrill.diagnosis.stores.patterns import names_key, pattern_of
from rankdrill.site import outward
from rankdrill.step import Site

__all__ = ["asks_again", "is_set_there_by", "sets_later"]

_CONDITIONS = (ast.If, ast.While, ast.IfExp)


def sets_later(rank: int, site: Site, key: str, size: int) -> bool:
    """Whether `rank`, which is at `site`, may set `key` further on in that function, or in one that led there; `size`
    is that of the world.
    """
    return any(names_key(later.pattern, key, rank) and _is_for(rank, later, size) for later in _set_behind(site))


def is_set_there_by(site: Site | None, key: str, rank: int) -> bool:
    """Whether what is set at that line is `key` where `rank` comes there, and no other, as the source says."""
    function = function_around(site) if site is not None else None
    if site is None or function is None:
        return False
    calls = [call for call in calls_at(function, site.line) if name_called(call) in SETTING and call.args]
    patterns = [_pattern(call.args[0], function, site) for call in calls]
    return any(
        pattern is not None
        and names_key(pattern, key, rank)
        and not any(names_key(pattern, key, other) for other in (rank - 1, rank + 1))
        for pattern in patterns
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    """A call that sets keys of a pattern, in that function of a file, under these conditions; of each, whether it is to
    hold.
    """

    pattern: str
    tree: ast.Module
    function: ast.AST
    conditions: tuple[tuple[ast.expr, bool], ...]


@lru_cache(maxsize=64)
def _set_behind(site: Site) -> tuple[_Setting, ...]:
    """What is set further on: read once, and not for each two ranks of a thousand."""
    return tuple(setting for line in outward(site) for setting in _set_behind_in(line))


def _set_behind_in(site: Site) -> Iterator[_Setting]:
    """The same in the function of `site` alone, by helpers of that file, too."""
    function, tree = function_around(site), tree_of(site.file)
    if function is None or tree is None:
        return
    direct = [(call, _pattern(call.args[0], function, site)) for call in setting_calls(function)]
    by_helpers = [
        (call, pattern_of(key, tree))
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and name_called(call) not in SETTING
        for key in keys_set_by(call, tree)
    ]
    for call, pattern in (*direct, *by_helpers):
        if pattern is not None and call.lineno != site.line and _comes(site, function, call):
            around = tuple((node.test, _in_body(node, call)) for node in _conditions_around(function, call))
            yield _Setting(pattern, tree, function, around)


def _pattern(given: ast.expr, function: ast.AST, site: Site) -> str | None:
    """What the key looks like that is `given` in the `function` around `site`; of a parameter what its caller gives."""
    pattern = pattern_of(given, function if _is_bound_in(given, function) else tree_of(site.file))
    if pattern is not None or not isinstance(given, ast.Name) or site.caller is None:
        return pattern
    outer = function_around(site.caller)
    calls = [call for call in calls_at(outer, site.caller.line) if name_called(call) == site.function] if outer else []
    if len(calls) != 1:
        return None
    handed = handed_to(calls[0], function)
    return pattern_of(handed[given.id], tree_of(site.caller.file)) if given.id in handed else None


def _is_bound_in(given: ast.expr, function: ast.AST) -> bool:
    """Whether a name of the function's own is in it."""
    own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return any(isinstance(node, ast.Name) and node.id in own for node in ast.walk(given))


def _is_for(rank: int, setting: _Setting, size: int) -> bool:
    """Whether none of its conditions keeps this rank away, as far as the source says."""
    on_it = Reading(rank, size, setting.tree, setting.function)
    return all(on_it.holds(test) in (None, wanted) for test, wanted in setting.conditions)


def _in_body(node: ast.If | ast.While | ast.IfExp, call: ast.Call) -> bool:
    body = node.body if isinstance(node.body, list) else [node.body]
    return any(below is call for part in body for below in ast.walk(part))


def asks_again(site: Site) -> bool:
    """Whether a loop asks at `site`, or where that was called, until something is so; also where nobody can say."""
    outer: Site | None = site
    while outer is not None:
        function = function_around(outer)
        if function is None:
            return True
        loops = [node for node in ast.walk(function) if isinstance(node, ast.While)]
        if any(loop.lineno <= outer.line <= (loop.end_lineno or loop.lineno) for loop in loops):
            return True
        outer = outer.caller
    return False


def _comes(site: Site, function: ast.AST, call: ast.Call) -> bool:
    """Whether a rank at `site` may come to `call` of the same key: in this round, or in one that does not change it."""
    other = replace(site, line=call.lineno)
    order = order_of(site, other)
    if order is not Order.BEFORE or not share_a_loop(site, other):
        return order is Order.AFTER
    key = {name for given in (call.args[:1] if name_called(call) in SETTING else call.args) for name in names_in(given)}
    around_both = [
        node
        for node in ast.walk(function)
        if isinstance(node, LOOPS)
        and all(node.lineno <= line <= (node.end_lineno or 0) for line in (site.line, call.lineno))
    ]
    return any(key.isdisjoint(_bound_in(loop)) for loop in around_both) or not around_both


def _bound_in(loop: ast.AST) -> set[str]:
    """The names that mean something else in its next round."""
    return {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _conditions_around(function: ast.AST, call: ast.Call) -> Iterator[ast.If | ast.While | ast.IfExp]:
    for node in ast.walk(function):
        if isinstance(node, _CONDITIONS) and any(below is call for below in ast.walk(node)):
            yield node
