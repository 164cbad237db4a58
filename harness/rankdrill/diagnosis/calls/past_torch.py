"""Which line changed memory by other means than torch's functions, where that was seen only as somebody waited.

It lies between the line that issued the call and the one that waits, and writes into an array, or frees a storage. Of
several that do nobody can say which it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from rankdrill.diagnosis.calls.source import Order, order_of, round_the_loop
from rankdrill.diagnosis.calls.tree import function_around, name_called, tree_of
from rankdrill.diagnosis.finding import Finding
from rankdrill.step import Site

__all__ = ["at_its_line"]

CHANGED = "changed"
FREED = "freed"
MOVED = "moved"
"""How the sides begin that say so."""
_HOW = {
    CHANGED: "past torch: through numpy, say",
    FREED: "by resizing its storage",
    MOVED: "by giving it other memory",
}
_MAKE_ARRAYS = frozenset({"numpy", "__array__"})
_TAKE_ARRAYS = frozenset({"from_numpy", "as_tensor", "frombuffer"})
_WRITE = frozenset({"fill", "put", "itemset", "setfield", "sort", "partition", "byteswap", "setflat"})
_WRITE_INTO_FIRST = frozenset({"copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis"})
_FREE = frozenset({"resize_", "_resize_", "set_"})
_AT_ONCE = ".numpy()"
"""For what is an array by its own words: ``tensor.numpy()[0] = 1``."""


def at_its_line(finding: Finding) -> Finding:
    """`finding`, a hazard that showed where its call was waited for, at the line that did it, if it can be said."""
    done, *others = finding.sides
    verb = done.did.partition(" ")[0]
    if verb not in _HOW:
        return finding
    done = replace(done, did=f"{done.did}, {_HOW[verb]}")
    waited, issued = done.sites[0], next((site for side in others for site in side.sites), None)
    lines = _lines_between(issued, waited, verb) if waited is not None and issued is not None else set()
    if waited is not None and len(lines) == 1:
        did = f"{done.did}, as shows in line {waited.line}"
        done = replace(done, did=did, sites=(replace(waited, line=lines.pop()),))
    return replace(finding, sides=(done, *others))


def _lines_between(issued: Site, waited: Site, verb: str) -> set[int]:
    """Where an array is written into, or memory is given up, on the way from the one line to the other."""
    function, tree = function_around(issued), tree_of(issued.file)
    if function is None or tree is None or function is not function_around(waited):
        return set()
    if order_of(issued, waited) is Order.AFTER:
        ways: tuple[range, ...] = (range(issued.line + 1, waited.line),)
    else:
        ways = round_the_loop(issued, waited)
    found = _writes(function, _arrays_in(tree)) if verb == CHANGED else _gives_up(function)
    return {line for line in found if any(line in way for way in ways)}


def _gives_up(function: ast.AST) -> Iterator[int]:
    """The lines that resize something, or set its ``data``."""
    yield from (call.lineno for call in _calls(function) if name_called(call) in _FREE)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == "data" and isinstance(node.ctx, ast.Store):
            yield node.lineno


def _writes(function: ast.AST, arrays: set[str]) -> Iterator[int]:
    """The lines that write into one of `arrays`, by an index, an operator, a method or a function of numpy's."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            by_index = any(isinstance(each, ast.Subscript) and _root(each) in arrays for each in targets)
            if by_index or (isinstance(node, ast.AugAssign) and _root(node.target) in arrays):
                yield node.lineno
        elif isinstance(node, ast.Call) and _writes_into_one(node, arrays):
            yield node.lineno


def _writes_into_one(call: ast.Call, arrays: set[str]) -> bool:
    name = name_called(call)
    if name in _WRITE and isinstance(call.func, ast.Attribute) and _root(call.func.value) in arrays:
        return True
    out = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
    first = call.args[:1] if name in _WRITE_INTO_FIRST else []
    return any(_root(each) in arrays for each in (*out, *first))


def _arrays_in(tree: ast.Module) -> set[str]:
    """What the file calls arrays that share memory with a tensor: ``view``, ``self.view``."""
    found = {_root(each) for call in _calls(tree) if name_called(call) in _TAKE_ARRAYS for each in call.args[:1]}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(name_called(call) in _MAKE_ARRAYS for call in _calls(node.value)):
            found |= {_root(target) for target in node.targets}
    return (found | {_AT_ONCE}) - {""}


def _root(node: ast.AST) -> str:
    """The name without its indices; `_AT_ONCE` of an array that has none."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return _AT_ONCE if name_called(node) in _MAKE_ARRAYS else ""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))
