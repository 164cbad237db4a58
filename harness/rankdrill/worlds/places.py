"""A traceback that ends where a rank was: its own stays in its process.

Whoever tells failures apart, Hypothesis say, asks for the type of an error and for the last line of its traceback.
"""

from __future__ import annotations

import ast
from types import CodeType, TracebackType

from rankdrill.step import Site

__all__ = ["traceback_to"]

_WHOLE_LINE = 1 << 10  # columns; of less than a line, Python would underline what is not what failed


class _HereError(Exception):
    pass


def traceback_to(site: Site) -> TracebackType:
    """A traceback of one frame, at `site`."""
    try:
        exec(_raising_at(site), {"_HereError": _HereError})
    except _HereError as here:
        raised = here.__traceback__
    assert raised is not None
    assert raised.tb_next is not None  # the first frame is this one
    return raised.tb_next


def _raising_at(site: Site) -> CodeType:
    tree = ast.parse("raise _HereError")
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = site.line
            node.col_offset, node.end_col_offset = 0, _WHOLE_LINE
    return compile(tree, site.file, "exec").replace(co_name=site.function, co_qualname=site.function)
