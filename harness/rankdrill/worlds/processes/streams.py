"""Where a rank's output goes: into files, so that it is there to read however the rank ends."""

from __future__ import annotations

import faulthandler
import io
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

__all__ = ["ASKED_BY", "redirect_output", "reopen_streams"]

ASKED_BY = signal.SIGURG
"""Nobody ends by it who does not listen; SIGUSR1 and SIGUSR2 are the scripts' own, to save before they are ended."""


def redirect_output(directory: Path, rank: int) -> None:
    """Let what this process prints go to files in `directory`; its stacks, when asked for by `ASKED_BY`, too."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for fd, name in ((1, "out"), (2, "err")):
        file = os.open(directory / f"rank-{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, fd)
        os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (lives as long as the process)
    sys.stdout, sys.stderr = _unbuffered(1), _unbuffered(2)
    stacks = open(directory / f"rank-{rank}.stacks", "a")  # noqa: SIM115 (faulthandler keeps writing to it)
    faulthandler.register(ASKED_BY, file=stacks, all_threads=True)


def reopen_streams() -> None:
    """Have streams again where an earlier body has closed them."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if getattr(getattr(sys, name), "closed", False):
            setattr(sys, name, _unbuffered(fd))


def _unbuffered(fd: int) -> TextIO:
    raw = open(fd, "wb", buffering=0, closefd=False)  # noqa: SIM115 (lives as long as the process)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
