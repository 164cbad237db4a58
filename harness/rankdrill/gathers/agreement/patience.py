"""How long a rank waits for the others: as its caller says, else as the environment does, else as the group does."""

from __future__ import annotations

import math
import os

from rankdrill.errors import UsageError

__all__ = ["TIMEOUT_VARIABLE", "patience"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

TIMEOUT_VARIABLE = "RANKDRILL_TIMEOUT"


def patience(timeout: float | None, groups_own: float) -> float:
    """Seconds: `timeout` if given, else the environment's, else that of the caller's group. Raises UsageError."""
    if timeout is not None:
        return _checked(timeout, f"timeout={timeout}")
    asked = os.environ.get(TIMEOUT_VARIABLE)
    if not asked:
        return groups_own
    try:
        seconds = float(asked)
    except ValueError:
        seconds = math.nan
    return _checked(seconds, f"{TIMEOUT_VARIABLE}={asked}")


def _checked(seconds: float, said: str) -> float:
    if not 0 < seconds < math.inf:
        raise UsageError(f"{said}: give a positive number of seconds")
    return seconds
