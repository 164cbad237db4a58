"""How far a call makes this process grow."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

KB = 1024
WORTH_TIDYING = 1 << 20  # a collection takes longer than a small call, and would disturb what is measured
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"


def tidy() -> None:
    """Give back what earlier results left in the allocator, where it would hide the growth of the next call."""
    gc.collect()
    gc.freeze()  # looking at all of torch's objects again would take longer than most calls
    ctypes.CDLL(None).malloc_trim(0)


def start() -> int | None:
    """Reset the peak and return the resident bytes; None where the kernel cannot do it."""
    try:
        _CLEAR.write_text(RESET_PEAK)
    except OSError:
        return None
    return _read("VmRSS:")


def growth(before: int | None) -> int | None:
    """How far above `before` the peak since `start` was, in bytes."""
    return None if before is None else max(0, _read("VmHWM:") - before)


def _read(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * KB
    raise LookupError(f"{_STATUS} has no {field}")
