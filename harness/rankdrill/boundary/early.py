"""Names that modules took before the boundary was in place: ``from os import rename``, ``_open = open``.

Modules that a rank imports take what is there by then. Those that the template has imported took the original: in them
the boundary replaces these names too, but for the standard library's, which are left as they are and make no steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from rankdrill.boundary.patch import Patch

__all__ = ["Early", "early_names", "early_patches"]

_OWN = frozenset({"rankdrill", "rankdrill_strategies", "__main__", "__mp_main__"})
_SOURCES = frozenset({"_io", "_pickle", "nt", "posix"})
"""Modules in C, from which `os`, `io` and `pickle` have these functions: nobody else's second name."""


@dataclass(frozen=True, slots=True)
class Early:
    """`module.name` is `original`, which the boundary replaces elsewhere; `stdlib` says whose module it is."""

    module: ModuleType
    name: str
    original: Any
    stdlib: bool

    def __str__(self) -> str:
        return f"{self.module.__name__}.{self.name}"


def early_names(patches: Iterable[Patch]) -> Iterator[Early]:
    """Each second name, in a module imported so far, of what `patches` are to replace; to be asked before they do."""
    originals = {}
    replaced = set()
    for patch in patches:
        original = getattr(patch.owner, patch.name)
        replaced.add((id(patch.owner), patch.name))
        if callable(original):
            originals[id(original)] = original
    for place, module in sorted(sys.modules.items()):
        top = place.partition(".")[0]
        if top in _OWN or top in _SOURCES or getattr(module, "__name__", None) != place:
            continue
        for name, value in list(vars(module).items()):
            if id(value) in originals and (id(module), name) not in replaced:
                yield Early(module, name, value, top in sys.stdlib_module_names)


def early_patches(early: Iterable[Early], patches: Iterable[Patch]) -> Iterator[Patch]:
    """What replaces `early` names as `patches` replace the first ones; to be asked before these do."""
    makes = {id(getattr(patch.owner, patch.name)): patch.make for patch in patches}
    for one in early:
        if not one.stdlib and getattr(one.module, one.name, None) is one.original:
            yield Patch(one.module, one.name, makes[id(one.original)])
