"""What a step says of an object: its type's name, and its size where that is known without work."""

from __future__ import annotations

from typing import Any

__all__ = ["nbytes_of", "type_name"]


def type_name(value: Any) -> str:
    """``int``, ``torch.Tensor``, ``my.module.Config``."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def nbytes_of(value: Any) -> int:
    """Bytes of data in `value`; 0 where that is not known before it is pickled."""
    if isinstance(value, bytes | bytearray):
        return len(value)
    try:
        size = getattr(value, "nbytes", 0)
    except Exception:  # a sparse tensor has no such number and says so; other objects may do what they like
        return 0
    return size if isinstance(size, int) and size >= 0 else 0
