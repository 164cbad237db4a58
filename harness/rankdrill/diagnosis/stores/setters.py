"""The one place in the user's source that sets a key, and which ranks can come there, as far as the source says."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rankdrill.diagnosis.calls.by_rank import Asked
from rankdrill.diagnosis.calls.common_caller import in_any_loop
from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.tree import calls_at, function_around, name_called, tree_of
from rankdrill.diagnosis.stores.helpers import SETTING
from rankdrill.diagnosis.stores.patterns import names_key, pattern_of
from rankdrill.diagnosis.stores.reached import Code, functions_from, own_nodes, speaks_of
from rankdrill.step import Site

__all__ = ["Setter", "gone_by", "may_be_set", "may_set_at", "only_setter"]

_PAST = (Order.AFTER, Order.APART)
MOST_CALLERS = 4  # functions that call each other, one within the next
MOST_USES = 16  # of one function; of more than that nobody is told apart


@dataclass(frozen=True)
class Setter:
    """The line that sets a key, and the one rank that can come there; or that sets the key there, each its `own`."""

    site: Site
    rank: int
    own: bool = False


def only_setter(key: str, sites: Iterable[Site], size: int, *, kept_away: bool = False) -> Setter | None:
    """Where a program that was seen at `sites` sets the `key`, if that is one place, and one of `size` ranks can come,
    or sets this key there, and others set those of theirs.

    None too where a key is set that the source does not tell: it may be this one. If `kept_away`, whose own key it is
    counts, too, where a condition lets it not come there.
    """
    codes = functions_from(sites)
    found = [(code, call) for code in codes for call in _setting(code) if _may_be(call, key, code.file)]
    if len(found) != 1:
        return None
    code, call = found[0]
    coming = _coming(code, call, codes, frozenset(range(size)), size)
    pattern = pattern_of(call.args[0], tree_of(code.file))
    ranks = [rank for rank in coming if pattern is None or names_key(pattern, key, rank)]
    if kept_away and pattern is not None and not ranks:
        ranks = [rank for rank in range(size) if names_key(pattern, key, rank)]
    if len(ranks) != 1:
        return None
    return Setter(Site(code.file, call.lineno, code.name or "<module>"), ranks[0], coming != frozenset(ranks))


def may_be_set(key: str, sites: Iterable[Site]) -> bool:
    """Whether a program that was seen at `sites` has a line that may set `key`, as far as the source says."""
    return any(_may_be(call, key, code.file) for code in functions_from(sites) for call in _setting(code))


def may_set_at(site: Site, key: str) -> bool:
    """Whether a call in that line may set `key`, as far as the source says."""
    function = function_around(site)
    calls = calls_at(function, site.line) if function is not None else []
    setting = [call for call in calls if name_called(call) in SETTING and call.args]
    return not setting or any(_may_be(call, key, site.file) for call in setting)


def gone_by(setter: Setter, site: Site | None) -> bool:
    """Whether a rank that is at `site` has gone past the line, and no loop brings it back."""
    while site is not None:
        function = function_around(site)
        there = [replace(site, line=line) for line in _lines_of(setter.site, site, function)] if function else []
        if there:
            past = all(order_of(each, site) in _PAST and not share_a_loop(each, site) for each in there)
            return past and not (site.caller is not None and in_any_loop(site.caller))
        site = site.caller
    return False


def _lines_of(place: Site, site: Site, function: ast.AST) -> Iterator[int]:
    """The line of `function`, which `site` lies in, that is `place` or that calls the function it lies in."""
    if place.file == site.file and place.function == site.function:
        yield place.line
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and speaks_of(place.function, node.func):
            yield node.lineno


def _setting(code: Code) -> Iterator[ast.Call]:
    """Calls that look as if they set a key of a store, which takes a value too: not those of sets and events."""
    for node in own_nodes(code.node):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=[_, _, *_]) if name in SETTING:
                yield node


def _may_be(call: ast.Call, key: str, file: str) -> bool:
    pattern = pattern_of(call.args[0], tree_of(file))
    return pattern is None or names_key(pattern, key)


def _coming(
    code: Code, node: ast.AST, codes: Sequence[Code], ranks: frozenset[int], size: int, most: int = MOST_CALLERS
) -> frozenset[int]:
    """Those of `ranks` that can come to `node` in `code`, from wherever in `codes` that is spoken of."""
    ranks = Asked(size, tree_of(code.file), code.node).let_through(code.node.body, node, ranks)
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
        coming |= _coming(other, use, codes, ranks, size, most - 1)
        if coming == ranks:
            break
    return coming
