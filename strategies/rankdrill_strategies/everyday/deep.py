"""Structures deeper than a recursive encoder reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankdrill_strategies.everyday.table import Table

__all__ = ["DEEP"]

# Levels. Pickle itself reaches some hundreds: Python allows it a thousand calls, of which a test has used many.
_DEPTHS = (70, 305, 350)


def _list(inner: Any) -> Any:
    return [inner]


def _tuple(inner: Any) -> Any:
    return (inner,)


def _dict(inner: Any) -> Any:
    return {"a": inner}


def _pair(inner: Any) -> Any:
    """A linked list."""
    return [0, inner]


def _nested(depth: int, wrap: Callable[[Any], Any]) -> Callable[[], Any]:
    def make() -> Any:
        here: Any = None
        for _ in range(depth):
            here = wrap(here)
        return here

    return make


DEEP: Table = tuple(_nested(depth, wrap) for depth in _DEPTHS for wrap in (_list, _tuple, _dict, _pair))
