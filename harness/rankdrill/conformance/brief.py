"""Payloads in a line, for people: sizes and beginnings of what is large."""

from __future__ import annotations

import reprlib
from typing import Any

__all__ = ["brief"]

MOST_CHARACTERS = 300
_HEAD_BYTES = 16


class _Brief(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring, self.maxother, self.maxlevel = 80, 120, 4

    def repr_instance(self, x: Any, level: int) -> str:
        """What has no form of its own here; the usual one would write out all of it, and cut that."""
        if isinstance(x, bytes | bytearray) and len(x) > 2 * _HEAD_BYTES:
            return f"<{len(x):,} bytes, {bytes(x[:_HEAD_BYTES])!r}…>"
        if hasattr(x, "dtype") and hasattr(x, "shape"):
            return f"<{type(x).__name__} {str(x.dtype).removeprefix('torch.')}{list(x.shape)}>"
        return super().repr_instance(x, level)


_BRIEF = _Brief()


def brief(value: object) -> str:
    """`value` in a line of at most `MOST_CHARACTERS`; its type alone where it cannot say more."""
    try:
        told = " ".join(_BRIEF.repr(value).split())
    except Exception:  # somebody else's __repr__
        told = f"<{type(value).__qualname__}>"
    return told if len(told) <= MOST_CHARACTERS else f"{told[: MOST_CHARACTERS - 1]}…"
