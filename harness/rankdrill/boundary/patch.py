"""A patch: one attribute of one module or class, replaced and later put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Patch", "apply"]


@dataclass(frozen=True, slots=True)
class Patch:
    """`owner.name` becomes `make(original)`."""

    owner: Any
    name: str
    make: Callable[[Any], Any]


def apply(patches: Iterable[Patch]) -> Callable[[], None]:
    """Apply `patches` in order; returns a function that puts the originals back, last first."""
    undo: list[tuple[Any, str, Any]] = []
    for patch in patches:
        original = getattr(patch.owner, patch.name)
        undo.append((patch.owner, patch.name, original))
        setattr(patch.owner, patch.name, patch.make(original))

    def restore() -> None:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)

    return restore
