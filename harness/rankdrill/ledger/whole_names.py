"""Names of functions that a record has no room for, read in the source."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from rankdrill.ledger.format import ELLIPSIS

__all__ = ["whole_name"]

_CUT = ELLIPSIS.decode()
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def whole_name(file: str, line: int, name: str) -> str:
    """The function in that line where `name` is the beginning of its own; otherwise `name` as it is.

    Tests have long names, and who looks a line up in the source goes by the name of the function that it is in.
    """
    return _found(file, line, name) if name.endswith(_CUT) else name


@lru_cache(maxsize=256)
def _found(file: str, line: int, name: str) -> str:
    beginning = name.removesuffix(_CUT).rstrip("\ufffd")  # a letter may be cut in two
    around = [(first, each) for first, last, each in _functions(file) if first <= line <= last]
    innermost = max(around, default=(0, ""))[1]
    return innermost if beginning and innermost.startswith(beginning) else name


@lru_cache(maxsize=16)
def _functions(file: str) -> tuple[tuple[int, int, str], ...]:
    """First and last line and name of each."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    nodes = (node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
    return tuple((node.lineno, node.end_lineno or node.lineno, node.name) for node in nodes)
