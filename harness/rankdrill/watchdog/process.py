"""The watchdog's process: nobody's burden, and gone when nobody is left to watch."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rankdrill.watchdog.watching import Watchdog

__all__ = ["main"]

LEAST_URGENT = 19
FIRST_TO_GO = "1000"  # where memory is short
SHORT = 60  # characters of what it says
MOST_TOLD = 4000  # characters of what ended it, if that was a mistake in it


def main(arguments: Sequence[str]) -> None:
    """Watch the directory that is given, until nobody is left; the second argument is the lock's descriptor."""
    directory, lock = Path(arguments[0]), int(arguments[1])
    _be_no_burden()
    _say(lock, pid=os.getpid(), reports=0)
    try:
        Watchdog(directory, lock, lambda reports: _say(lock, pid=os.getpid(), reports=reports)).watch()
    except Exception:
        _say(lock, pid=os.getpid(), failed=traceback.format_exc()[-MOST_TOLD:])
        raise


def _be_no_burden() -> None:
    os.umask(0o077)
    with suppress(OSError):
        os.nice(LEAST_URGENT)
    with suppress(OSError, ValueError):  # a rank may be bound to a processor, which it is to have for itself
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)


def _say(lock: int, **told: object) -> None:
    """Into the file of the lock, for who asks which process has it, and how often it had to report something."""
    with suppress(OSError):  # what was written before is overwritten, for which a full disk has room
        os.pwrite(lock, json.dumps(told).ljust(SHORT).encode() + b"\n", 0)
