"""Which strategies draw whatever pickles: None and a megabyte of bytes are as good as anything else there."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["draws_anything", "of_anything"]

_Strategy = TypeVar("_Strategy")

_of_anything: WeakSet[Any] = WeakSet()


def of_anything(strategy: _Strategy) -> _Strategy:
    """`strategy`, known from now on to draw whatever pickles."""
    _of_anything.add(strategy)
    return strategy


def draws_anything(strategy: Any) -> bool:
    """Whether `strategy` has been said to draw whatever pickles; what ``map`` or ``filter`` makes of it has not."""
    return strategy in _of_anything
