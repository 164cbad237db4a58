"""What this process must have to start ranks and to listen to them, looked for before it begins."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from rankdrill.errors import UnsupportedPlatform

__all__ = ["PROC", "require_means"]

PROC = Path("/proc")
# What a controller holds open: 3 N + 2 for a world of N ranks (8 for 2, 98 for 32), and a few for its template.
_FOR_EACH, _FOR_ALL = 3, 8


def require_means(ranks: int) -> None:
    """Raise `UnsupportedPlatform`, with the remedy, where a world of so many ranks would fail for want of something."""
    try:
        # Not of the one that lists them.
        held = len(os.listdir(PROC / "self" / "fd")) - 1
    except OSError as error:
        raise UnsupportedPlatform(f"ranks need {PROC}, which is not here ({error.strerror}); mount it") from None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = _FOR_EACH * ranks + _FOR_ALL
    if limit != resource.RLIM_INFINITY and limit - held < needed:
        raise UnsupportedPlatform(
            f"a world of {ranks} rank{'s' if ranks > 1 else ''} takes {needed} file descriptors here, and "
            f"{max(limit - held, 0)} are free (ulimit -n is {limit}); raise it to {held + needed} or more"
        )
