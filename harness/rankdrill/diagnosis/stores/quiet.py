"""Whether a rank, from one line to another, can have waited for others in a way that is no step, as by a socket.

It cannot where the source between the two calls nothing but what is known to wait for nobody.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rankdrill.diagnosis.calls.loops import share_a_loop
from rankdrill.diagnosis.calls.source import Order, order_of
from rankdrill.diagnosis.calls.tree import function_around
from rankdrill.step import Site

__all__ = ["quiet_between"]

_NAMES = frozenset(
    {"abs", "all", "any", "bool", "bytes", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max"}
    | {"min", "print", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"}
)
_FUNCTIONS = frozenset(
    {"json.dumps", "json.loads", "math.ceil", "math.exp", "math.floor", "math.log", "math.sqrt", "pickle.dumps"}
    | {"pickle.loads", "random.randint", "random.random", "random.uniform", "time.monotonic", "time.perf_counter"}
    | {"time.sleep", "time.time", "torch.tensor"}
)
_METHODS = frozenset({"check", "get_rank", "get_world_size", "item", "set", "tolist"}).union(
    *(dir(kind) for kind in (list, dict, set, str, bytes))
)
_WAITING = (ast.While, ast.With, ast.AsyncWith, ast.AsyncFor, ast.Await, ast.Yield, ast.YieldFrom)
MOST_KNOWN = 1 << 8  # triples of lines


@lru_cache(maxsize=MOST_KNOWN)
def quiet_between(after: Site, got: Site, put: Site) -> bool:
    """Whether a rank came from `after` to the get of a key at `got`, and the set at `put`, without any such wait."""
    for first in _outward(after):
        mine, theirs = _up_to(function_around(first), got), _up_to(function_around(first), put)
        if mine and theirs:
            return _quiet(first, mine, theirs)
    return False


def _quiet(after: Site, got: Sequence[Site], put: Sequence[Site]) -> bool:
    here = got[-1]
    function = function_around(after)
    if function is None or order_of(after, here) is not Order.AFTER or share_a_loop(after, here):
        return False
    inner = [*got[:-1], *put[:-1]]
    helpers = {site.function for site in inner}
    between = [node for node in ast.walk(function) if after.line < getattr(node, "lineno", 0) <= put[-1].line]
    within = [node for site in inner if (helper := function_around(site)) for node in ast.walk(helper)]
    return all(_is_quiet(node, helpers) for node in (*between, *within))


def _is_quiet(node: ast.AST, helpers: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _NAMES or name in helpers
        case ast.Call(func=ast.Attribute(attr="get"), args=given):
            return bool(given)  # a queue's takes nothing
        case ast.Call(func=ast.Attribute(attr=name) as called):
            return name in _METHODS or name in helpers or ast.unparse(called) in _FUNCTIONS
        case ast.Call():
            return False
        case ast.For(iter=given):
            return isinstance(given, ast.Call | ast.List | ast.Tuple)
        case _:
            return not isinstance(node, _WAITING)


def _up_to(function: ast.AST | None, site: Site) -> list[Site]:
    """`site` and its callers up to the one in `function`; nothing where that is none of them."""
    way: list[Site] = []
    for each in _outward(site):
        way.append(each)
        if function is not None and function_around(each) is function:
            return way
    return []


def _outward(site: Site) -> Iterator[Site]:
    outer: Site | None = site
    while outer is not None:
        yield outer
        outer = outer.caller
