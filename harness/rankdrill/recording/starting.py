"""`rankdrill.record`: from here on, this process writes down its steps."""

from __future__ import annotations

import os
import sys
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

__all__ = ["DIRECTORY_VARIABLE", "record"]

DIRECTORY_VARIABLE = "RANKDRILL_RECORD"
_recordings: dict[int, Recording] = {}
"""By process, of which a forked child is another: at most one that is open."""


def record(directory: str | os.PathLike[str] | None = None, *, size: int = DEFAULT_BYTES) -> Recording:
    """Write down, from here on, what this process does in collectives, messages, groups and stores into `directory`.

    Without a directory it is that of ``RANKDRILL_RECORD``; where that is not set nothing is recorded. `size` is how
    many bytes the newest steps may take, at most 64 MiB. Asked again for the same directory it gives what is there.
    Where nothing can be written, one line on stderr says so, and the job goes on without a record.

    Raises `UsageError` for a size that cannot be.
    """
    if not isinstance(size, int) or isinstance(size, bool) or not FEWEST_BYTES <= size <= MOST_BYTES:
        raise UsageError(f"record(size={size!r}): a record takes {FEWEST_BYTES} to {MOST_BYTES} bytes")
    given = os.fspath(directory) if directory is not None else os.environ.get(DIRECTORY_VARIABLE, "")
    if not given:
        return Recording(Path(), why=f"no directory was given, and {DIRECTORY_VARIABLE} is not set")
    place = Path(os.path.abspath(given))
    known = _recordings.get(os.getpid())
    if known is not None and known.open:
        if known.directory != place:
            _warn(f"this process is recorded in {known.directory} already, and not in {place}")
        return known
    _recordings[os.getpid()] = made = _started(place, size)
    return made


def _started(place: Path, size: int) -> Recording:
    for inherited in _recordings.values():  # of the process that this one was forked from
        inherited.close()
    _recordings.clear()
    if torch_seam.watched():
        why = "this process is a rank of rankdrill's own, which writes down its steps anyway"
        return Recording(place, why=why)
    try:
        return start(place, size)
    except OSError as error:
        why = f"{error.strerror or error}"
        _warn(f"nothing is recorded in {place}: {why}")
        return Recording(place, why=why)


def _warn(text: str) -> None:
    print(f"rankdrill: {text}", file=sys.stderr, flush=True)
