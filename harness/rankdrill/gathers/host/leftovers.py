"""What processes that have ended left in a directory: told by names that carry the process, and removed."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable

from rankdrill.gathers.host.liveness import Identity, has_gone, identify

__all__ = ["sweep"]

# Leftovers of processes that nobody can ask about (another machine, another container) go after a day.
LEFTOVER_S = 24 * 3600.0

# What makes a name one that nobody can guess, and hardly anybody gives a file of his own.
_DRAWN = re.compile("[0-9a-f]{32,}")


def sweep(
    directory: str, prefix: str, is_ours: Callable[[int], bool], remove: Callable[[str], None], suffix: str = ""
) -> None:
    """Call `remove` on every path in `directory` that a process of this user left and nobody can be using any more.

    Names read `prefix`, the process (`str` of an `Identity`), a dash, 32 or more hexadecimal digits, `suffix`;
    `is_ours` says of a mode whether it is of the kind that is made there. Never raises an OSError.
    """
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        me = identify()
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(suffix)):
                continue
            process, _, drawn = entry.name.removeprefix(prefix).removesuffix(suffix).rpartition("-")
            maker = Identity.parse(process) if _DRAWN.fullmatch(drawn) else None
            with contextlib.suppress(OSError, MemoryError):
                status = entry.stat(follow_symlinks=False)
                mine = maker is not None and is_ours(status.st_mode) and status.st_uid == os.geteuid()
                if mine and maker is not None and _is_over(maker, me, status.st_mtime):
                    remove(entry.path)


def _is_over(maker: Identity, me: Identity, changed: float) -> bool:
    if me.machine and maker.machine == me.machine:
        return has_gone(maker, me)
    return time.time() - changed > LEFTOVER_S
