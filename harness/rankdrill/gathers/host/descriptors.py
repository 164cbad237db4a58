"""Whether there are file descriptors for what is to come, found out before anybody waits for it."""

from __future__ import annotations

import os
import resource

__all__ = ["require_descriptors"]


def require_descriptors(count: int) -> None:
    """Raise OSError, with the remedy, unless `count` more files could be opened now."""
    taken: list[int] = []
    try:
        # By trying, which needs no /proc, and heeds the limits of this process and of the machine alike.
        taken.extend(os.pipe())
        while len(taken) < count:
            taken.append(os.dup(taken[0]))
    except OSError as error:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise OSError(
            error.errno,
            f"{count} more file descriptors are needed and {len(taken)} are to be had (ulimit -n is {limit}); raise it",
        ) from None
    finally:
        for descriptor in taken:
            os.close(descriptor)
