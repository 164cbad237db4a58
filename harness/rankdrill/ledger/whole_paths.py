"""Paths that a record has no room for, found among the modules here, and below the working directory and others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from rankdrill.ledger.format import ELLIPSIS

__all__ = ["look_below", "whole_path"]

_CUT = ELLIPSIS.decode()
_places: list[str] = []  # directories below which files are looked for, beside the working directory
_found: dict[str, str] = {}
_missed: dict[str, tuple[int, str]] = {}  # and among how many modules, and where


def look_below(directory: str) -> None:
    """Have paths found below `directory` too: that of a script which only ranks run."""
    if directory not in _places:
        _places.append(directory)
        _missed.clear()


def whole_path(path: str) -> str:
    """The one file here whose path ends as `path` does, which was cut in front; otherwise `path` as it is."""
    if not path.startswith(_CUT):
        return path
    if path in _found:
        return _found[path]
    asked = len(sys.modules), _here()
    if _missed.get(path) == asked:
        return path
    tail = path.removeprefix(_CUT).lstrip("\ufffd")  # a letter may be cut in two
    below = (file for place in (asked[1], *_places) for file in _below(place, tail))
    files = {file for file in (*_of_modules(), *below) if file.endswith(tail)}
    if len(files) == 1:
        return _found.setdefault(path, *files)
    _missed[path] = asked
    return path


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:  # it is gone
        return ""


def _of_modules() -> Iterator[str]:
    for module in tuple(sys.modules.values()):
        file = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if isinstance(file, str):
            yield os.path.abspath(file)


def _below(directory: str, tail: str) -> Iterator[str]:
    """The file that a path from `directory` on leads to, for each part of `tail` that such a path may begin with."""
    parts = tail.split(os.sep)[1:]
    for first in range(len(parts)):
        file = os.path.join(directory, *parts[first:])
        if os.path.isfile(file):
            yield file
