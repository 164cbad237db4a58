"""A call to be made in another process, before there are ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["NamedCall"]


class NamedCall(NamedTuple):
    """`function` of `module`, both by name, with positional `arguments` that JSON can carry (it makes tuples lists)."""

    module: str
    function: str
    arguments: tuple[Any, ...]
