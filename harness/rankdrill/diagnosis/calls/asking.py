"""Whether a condition asks which rank it is on, as far as its file says.

A rank is asked for where something of that name is: `rank == 0`, `dist.get_rank()`, `os.environ["RANK"]`. Of any other
name what it is bound to in the file says more than how it is called: `leader = rank == 0` asks for the rank, and
`main = build()` does not. Only where it is bound elsewhere its own words are left.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

__all__ = ["asks_for_the_rank", "names_ranks"]

_OF_A_RANK = re.compile(r"(^|_)(my)?rank(\d|_|$)|(^|_)process_index$", re.IGNORECASE)
_CALLED_SO = re.compile(r"(^|_)(main|master|leader|chief|global_zero|process_zero)(_|$)", re.IGNORECASE)
"""`is_main_process()`, `self.is_master`; not `remaining`."""
_OF_MODULES = frozenset({"__name__", "__main__"})  # who asks whether it is the script is no rank's main process
MOST_STEPS = 8  # from a name to what it is bound to, to what that is bound to, and so on
_Bindings = Mapping[str, Sequence[ast.AST]]


def asks_for_the_rank(test: ast.AST, tree: ast.AST) -> bool:
    """Whether what stands in `test` depends on the rank; `tree` is its file."""
    bindings, seen, nodes = _bindings(tree), set[str](), [test]
    for _ in range(MOST_STEPS + 1):
        names = {name for node in nodes for name in _names(node)} - seen
        if any(_is_of_a_rank(name, bindings) for name in names):
            return True
        seen |= names
        nodes = [value for name in names for value in bindings.get(name, ())]
    return False


def names_ranks(test: ast.expr, tree: ast.AST) -> bool:
    """Whether `test`, which `asks_for_the_rank`, holds for ranks that it names, and not for all but those: it compares
    them with ``==`` or ``in``, or asks whether this is the main one.
    """
    match test:
        case ast.BoolOp(op=joint, values=parts):
            asking = [part for part in parts if asks_for_the_rank(part, tree)]
            joined = isinstance(joint, ast.And) or len(asking) == len(parts)
            return joined and all(names_ranks(part, tree) for part in asking)
        case ast.Compare(ops=[sign]):
            return isinstance(sign, ast.Eq | ast.In | ast.Is)
        case ast.UnaryOp(op=ast.Not(), operand=asked):
            return _is_a_number(asked)
        case ast.Name() | ast.Attribute() | ast.Call():
            return not _is_a_number(test)
    return False


def _is_a_number(asked: ast.expr) -> bool:
    """Whether it is called as the number of a rank is: of ``rank`` and ``dist.get_rank()``, not of ``is_rank_zero``."""
    name = ast.unparse(asked.func if isinstance(asked, ast.Call) else asked).rpartition(".")[2]
    return name.endswith(("rank", "index"))


def _is_of_a_rank(name: str, bindings: _Bindings) -> bool:
    """Whether it says so itself."""
    return bool(_OF_A_RANK.search(name) or (name not in bindings and _CALLED_SO.search(name)))


def _names(node: ast.AST) -> Iterator[str]:
    """All names in it, those of attributes and keys too."""
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                if name not in _OF_MODULES:
                    yield name


@lru_cache(maxsize=16)  # of a file of some thousand lines it takes 30 ms, and is asked for again and again
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
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, given in zip(target.elts, value.elts, strict=True):
            _bind(found, one, given)
