"""The C stacks of ranks that are stuck in no collective, where py-spy is installed: Python's own show no C."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping

__all__ = ["frames_in", "native_stacks"]

MOST_RANKS = 2  # of one run: others are told by their Python stacks
DUMP_S = 5.0  # for one; it takes about 0.3 s
MOST_LETTERS = 80  # of a function's name: C++ spells out all types that a template is made for
_BODY = "Jobs._body "  # what runs it
_NOT_THE_BODY = ("(rankdrill/", "(_pytest/", "(pluggy/")
HEADING = "with C, by py-spy:"
HEADING_PLAIN = "by py-spy, from outside:"


def native_stacks(pids: Mapping[int, int], *, unstopped: bool = False) -> dict[int, str]:
    """What py-spy says of the first few of `pids`, by rank; nothing where it is not installed, or cannot look.

    It stops a process while it looks; not if it is to be left `unstopped`: then it sees no C, and may see things
    that go on meanwhile.
    """
    spy = shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", ""))))
    if spy is None:
        return {}
    how, heading = ("--nonblocking", HEADING_PLAIN) if unstopped else ("--native", HEADING)
    told = {rank: _dump(spy, how, pid) for rank, pid in list(pids.items())[:MOST_RANKS]}
    return {rank: f"{heading}\n{text}" for rank, text in told.items() if text}


def _dump(spy: str, how: str, pid: int) -> str:
    command = [spy, "dump", how, "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "\n".join(frames_in(done.stdout)) if done.returncode == 0 else ""


def _short(line: str) -> str:
    """One line of a dump, the function's name without its types where these are too many: ``    name… (library)``."""
    name, space, where = line.rpartition(" (")
    if len(name) <= MOST_LETTERS:
        return line
    head = re.split("[<(]", name, maxsplit=1)[0]
    return f"{(head if head.strip() else name)[:MOST_LETTERS]}…{space}{where}"


def frames_in(dump: str) -> Iterator[str]:
    """The lines of each thread down to the body, rankdrill's own left out."""
    below = True  # what comes before the first thread is the command line, which may be of several lines
    for line in dump.splitlines():
        if line.startswith("Thread "):
            below = False
            yield line
        elif line.startswith("    "):
            below = below or _BODY in line
            if not below and not any(own in line for own in _NOT_THE_BODY):
                yield _short(line)
