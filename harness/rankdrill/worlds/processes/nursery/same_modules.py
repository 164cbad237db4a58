"""Whether imports by one path give the modules that imports by another have given."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Collection, Sequence
from importlib.machinery import all_suffixes

__all__ = ["suppliers", "unlike"]

_SUFFIXES = frozenset(all_suffixes())
_PACKAGE = ("__init__.py", "__init__.pyc")


def suppliers(path: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """For each top-level module of `names` the first entry of `path` that has it."""
    wanted = set(names)
    found: dict[str, str] = {}
    for entry in dict.fromkeys(path):
        for name in _offers(entry, wanted):
            found.setdefault(name, entry)
    return found


def unlike(path: Sequence[str], taken: dict[str, str], names: Collection[str]) -> str | None:
    """What imports by `path` would have taken from elsewhere than `taken` says, in words; None where all is alike."""
    there = suppliers(path, names)
    for name in sorted(names):
        old, new = taken.get(name), there.get(name)
        if old != new:
            return f"{name} would come from {_spelled(new)}, not from {_spelled(old)}"
    return None


def _spelled(entry: str | None) -> str:
    return "nowhere in sys.path" if entry is None else entry or "the current directory"


def _offers(entry: str, wanted: set[str]) -> set[str]:
    """Those of `wanted` that `entry` has: as a file, as a package, in an archive."""
    here = entry or os.curdir
    try:
        listed = os.listdir(here)
    except NotADirectoryError:
        return {module.name for module in pkgutil.iter_modules([here])} & wanted
    except OSError:
        return set()
    found = set()
    for file in listed:
        name, dot, suffix = file.partition(".")
        if name in wanted and (dot + suffix in _SUFFIXES or (not dot and _is_package(os.path.join(here, file)))):
            found.add(name)
    return found


def _is_package(directory: str) -> bool:
    # Without __init__ it gives way to any module further down the path.
    return any(os.path.isfile(os.path.join(directory, init)) for init in _PACKAGE)
