"""`rankdrill.record`: from here on, this process writes down its steps."""

from __future__ import annotations

import os
import sys
from math import inf
from pathlib import Path

from rankdrill.boundary import torch_seam
from rankdrill.errors import UsageError
from rankdrill.recording.recording import (
    DEFAULT_BYTES,
    FEWEST_BYTES,
    MOST_BYTES,
    Recording,
    start,
)
from rankdrill.watchdog import start_watchdog

__all__ = ["DIRECTORY_VARIABLE", "HANG_VARIABLE", "check_hang_after", "record"]

DIRECTORY_VARIABLE = "RANKDRILL_RECORD"
HANG_VARIABLE = "RANKDRILL_HANG_AFTER"
_recordings: dict[int, Recording] = {}
"""By process, of which a forked child is another: at most one that is open."""


def record(
    directory: str | os.PathLike[str] | None = None,
    *,
    size: int = DEFAULT_BYTES,
    hang_after: float | None = None,
) -> Recording:
    """Write down, from here on, what this process does in collectives, messages, groups and stores into `directory`.

    Without a directory it is that of ``RANKDRILL_RECORD``; where that is not set nothing is recorded. `size` is how
    many bytes the newest steps may take, at most 64 MiB. Asked again for the same directory it gives what is there.
    Where nothing can be written, one line on stderr says so, and the job goes on without a record.

    With `hang_after`, seconds, or ``RANKDRILL_HANG_AFTER`` in its place, a process of its own watches the ranks of this
    host: where they certainly hang, or none has moved for so long, it writes a report with their stacks into the
    directory. It ends no rank, stops none, and goes when they are gone.

    Raises `UsageError` for a size, or a time, that cannot be.
    """
    if not isinstance(size, int) or isinstance(size, bool) or not FEWEST_BYTES <= size <= MOST_BYTES:
        raise UsageError(f"record(size={size!r}): a record takes {FEWEST_BYTES} to {MOST_BYTES} bytes")
    hang_after = check_hang_after(hang_after)
    given = os.fspath(directory) if directory is not None else os.environ.get(DIRECTORY_VARIABLE, "")
    if not given:
        return Recording(Path(), why=f"no directory was given, and {DIRECTORY_VARIABLE} is not set")
    place = Path(os.path.abspath(given))
    known = _recordings.get(os.getpid())
    if known is not None and known.open:
        if known.directory != place:
            _warn(f"this process is recorded in {known.directory} already, and not in {place}")
        return known
    _recordings[os.getpid()] = made = _started(place, size, hang_after)
    return made


def _started(place: Path, size: int, hang_after: float | None) -> Recording:
    for inherited in _recordings.values():  # of the process that this one was forked from
        inherited.close()
    _recordings.clear()
    if torch_seam.watched():
        why = "this process is a rank of rankdrill's own, which writes down its steps anyway"
        return Recording(place, why=why)
    try:
        made = start(place, size, hang_after)
    except OSError as error:
        why = f"{error.strerror or error}"
        _warn(f"nothing is recorded in {place}: {why}")
        return Recording(place, why=why)
    # Not before: a watchdog that sees nobody who wants it ends.
    if hang_after is not None and (trouble := start_watchdog(place)):
        _warn(f"nobody watches what is recorded in {place}: {trouble}")
    return made


def check_hang_after(given: float | None) -> float | None:
    """The seconds that are `given`, else those of the variable; None where there are none."""
    text = os.environ.get(HANG_VARIABLE, "")
    if given is None and not text:
        return None
    name = f"{HANG_VARIABLE}={text}" if given is None else f"record(hang_after={given!r})"
    try:
        seconds = float(text if given is None else given)
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(given, bool | str) or not 0 < seconds < inf:
        raise UsageError(f"{name}: give seconds above 0")
    return seconds


def _warn(text: str) -> None:
    print(f"rankdrill: {text}", file=sys.stderr, flush=True)
