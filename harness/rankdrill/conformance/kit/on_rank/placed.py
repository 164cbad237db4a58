"""Has a rank work where nobody else does, so that what it leaves there is seen."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["placed"]


@contextmanager
def placed(work: str, scratch: str) -> Iterator[None]:
    """Work in the directory `work`, with `scratch` for temporary files."""
    before = os.getcwd(), os.environ.get("TMPDIR"), tempfile.tempdir, list(sys.path)
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]  # modules are found where they were
    os.chdir(work)
    os.environ["TMPDIR"] = scratch
    tempfile.tempdir = scratch
    try:
        yield
    finally:
        os.chdir(before[0])
        if before[1] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[1]
        tempfile.tempdir = before[2]
        sys.path[:] = before[3]
