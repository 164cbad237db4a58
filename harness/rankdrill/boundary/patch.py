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
    """Apply all of `patches` in order, or none; returns a function that puts the originals back, last first."""
    undo: list[tuple[Any, str, Any, bool]] = []

    def restore() -> None:
        for owner, name, original, own in reversed(undo):
            if own:
                setattr(owner, name, original)
            else:  # a class had it from its base
                delattr(owner, name)

    try:
        for patch in patches:
            original = getattr(patch.owner, patch.name)
            made = patch.make(original)
            undo.append((patch.owner, patch.name, original, patch.name in vars(patch.owner)))
            setattr(patch.owner, patch.name, made)
    except BaseException:  # all or nothing
        restore()
        raise

    return restore
