"""Objects in a few words, for messages; never raises and never says much."""

from __future__ import annotations

import reprlib
from typing import Any

__all__ = ["describe", "type_name"]

_MAX_CHARACTERS = 60
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, _MAX_CHARACTERS, _MAX_CHARACTERS


def describe(obj: Any) -> str:
    """`repr(obj)`, cut short; only the type where even that fails."""
    try:
        return _SHORT.repr(obj)
    except Exception:  # a payload's repr may raise anything, and the difference is still worth telling
        return f"<{type_name(type(obj))}>"


def type_name(kind: type) -> str:
    """``float``, ``collections.deque``: the name a reader would import it by."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
