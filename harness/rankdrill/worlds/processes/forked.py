"""A child that a body forked, and that came to the end of that body: it ends there, as without rankdrill."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress

__all__ = ["end_if_forked"]

FAILED = 1


def end_if_forked(rank: int, error: BaseException | None) -> None:
    """End this process if it is not `rank`, the process of one; with `error`, if it came to its end by that.

    What it would go on with is its parent's: to answer for the rank, and to take its next job.
    """
    if os.getpid() == rank:
        return
    code = 0
    with suppress(BaseException):  # nothing may lead back into what the parent does
        code = _code_of(error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(code)


def _code_of(error: BaseException | None) -> int:
    """What an interpreter would have ended with, having said what it says."""
    if error is None or (isinstance(error, SystemExit) and error.code is None):
        return 0
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code & 0xFF
    if isinstance(error, SystemExit):
        print(error.code, file=sys.stderr)
    else:
        traceback.print_exception(error)
    return FAILED
