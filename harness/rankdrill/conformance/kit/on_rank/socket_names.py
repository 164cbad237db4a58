"""Names on disk of sockets of this process: they stay when the socket is gone, if nobody removes them."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
from typing import Any

__all__ = ["names_left", "note_names"]

_BOUND: set[str] = set()


@functools.cache
def note_names() -> None:
    """Note them from now on, for good: such a hook stays. For the processes that are asked questions, and no other."""
    sys.addaudithook(_note)


def names_left() -> list[str]:
    """Those that are there, of sockets that no process holds any more."""
    held = _held()
    return sorted(name for name in _BOUND if _is_socket(name) and name not in held)


def _held() -> frozenset[str]:
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as listed:
            fields = (line.rstrip("\n").split(None, 7) for line in listed)
            return frozenset(each[7] for each in fields if len(each) > 7)
    except OSError:
        return frozenset(_BOUND)  # nobody can say


def _is_socket(name: str) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.lstat(name).st_mode)
    return False


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.bind" and isinstance(arguments[1], str) and arguments[1].startswith("/"):
        _BOUND.add(arguments[1])
