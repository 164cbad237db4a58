"""The list that a caller gives for results: whether what torch would do with it, ``given[i] = value``, will work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["fill", "wrong_with"]


def wrong_with(name: str, given: Any, size: int) -> str | None:
    """Why `given`, the argument `name`, cannot take one object of each of `size` ranks; None if it can."""
    if not hasattr(type(given), "__setitem__"):
        return f"{name} is a {type(given).__name__}, whose entries cannot be set; give a list of {size} entries"
    if isinstance(given, Mapping) or not hasattr(type(given), "__len__"):
        return None
    if len(given) < size:
        return f"{name} has {len(given)} entries for a group of {size}"
    return None


def fill(given: Any, values: Sequence[Any]) -> None:
    """Put `values` in its first entries; further ones stay as they are."""
    for index, value in enumerate(values):
        given[index] = value
