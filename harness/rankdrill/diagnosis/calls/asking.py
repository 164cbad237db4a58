"""Whether a condition asks which rank it is on, as far as its file says.

A rank is asked for where something of that name is: `rank == 0`, `dist.get_rank()`, `os.environ["RANK"]`. Of any other
name what it is bound to in the file says more than how it is called: `leader = rank == 0` asks for the rank, and
`main = build()` does not. Only where it is bound elsewhere its own words are left.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["asks_for_the_rank"]

_OF_A_RANK = re.compile(r"(^|_)(my)?rank(\d|_|$)", re.IGNORECASE)
_CALLED_SO = re.compile(r"(^|_)(main|master|leader|chief|global_zero)(_|$)", re.IGNORECASE)
"""`is_main_process()`, `self.is_master`; not `remaining`."""
MOST_STEPS = 8  # from a name to what it is bound to, to what that is bound to, and so on
_Bindings = Mapping[str, Sequence[ast.AST]]


def asks_for_the_rank(test: ast.AST, tree: ast.AST) -> bool:
    """Whether what stands in `test` depends on the rank; `tree` is its file."""
    return _asks(test, _bindings(tree), MOST_STEPS)


def _asks(node: ast.AST, bindings: _Bindings, steps: int) -> bool:
    return any(_is_of_a_rank(name, bindings, steps) for name in _names(node))


def _is_of_a_rank(name: str, bindings: _Bindings, steps: int) -> bool:
    if _OF_A_RANK.search(name):
        return True
    if name not in bindings:
        return _CALLED_SO.search(name) is not None
    return steps > 0 and any(_asks(value, bindings, steps - 1) for value in bindings[name])


def _names(node: ast.AST) -> Iterator[str]:
    """All names in it, those of attributes and keys too."""
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name


def _bindings(tree: ast.AST) -> dict[str, list[ast.AST]]:
    """What names and attributes are bound to anywhere in the file; a function's to what it returns."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _bind(found, target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                _bind(found, target, value)
            case ast.FunctionDef(name=name):
                returned = (each.value for each in ast.walk(node) if isinstance(each, ast.Return))
                found.setdefault(name, []).extend(value for value in returned if value is not None)
    return found


def _bind(found: dict[str, list[ast.AST]], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name | ast.Attribute):
        found.setdefault(target.id if isinstance(target, ast.Name) else target.attr, []).append(value)
