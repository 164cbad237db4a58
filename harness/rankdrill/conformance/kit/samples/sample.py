"""A sample: what a gather is asked to carry, as every rank can tell by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Make", "Sample"]

Make = Callable[[int, int, int], Any]
"""``make(rank, size, turn)``."""


@dataclass(frozen=True)
class Sample:
    """`make(rank, size, turn)` builds what a rank contributes: on one of them of `least` bytes or more.
    With `ordered` the order of keys has to arrive.
    """

    name: str
    make: Make
    least: int = 0
    ordered: bool = False
