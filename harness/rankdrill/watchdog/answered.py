"""The newest stacks that a watchdog has left of a process, read from its file: it may be torn, or long."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from rankdrill.watchdog.answering import STACKS
from rankdrill.worlds.processes.watching.stacks import THREAD_LINE, of_the_body

__all__ = ["answer_left_in", "heading", "without_ours"]

_HEAD = "asked by the watchdog at "
_ASKED = re.compile(rf"^{_HEAD}(?P<time>.{{1,40}}) \((?P<at_ns>\d{{1,19}})\): (?P<doing>.*)$", re.MULTILINE)
MOST_BYTES = 1 << 18  # of the end of the file
_HEART = "rankdrill/recording/heart.py"  # the thread by which a rank says that it lives


def heading() -> str:
    """What begins, in each file of stacks, what processes print now; what each is doing follows it."""
    return f"{_HEAD}{time.strftime('%Y-%m-%d %H:%M:%S %z')} ({time.monotonic_ns()}): "


def answer_left_in(directory: Path, name: str, since_ns: int = 0) -> str:
    """What was asked last of the process whose files are called `name`, if that was after `since_ns` of its clock."""
    with suppress(OSError):
        fd = os.open(directory / f"{name}{STACKS}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            raw = os.pread(fd, MOST_BYTES, max(0, size - MOST_BYTES))
        finally:
            os.close(fd)
        return _newest(raw.decode("utf-8", "replace"), since_ns)
    return ""


def _newest(text: str, since_ns: int) -> str:
    asked = list(_ASKED.finditer(text))
    if not asked or int(asked[-1]["at_ns"]) < since_ns:
        return ""
    found = asked[-1]
    stack = of_the_body(without_ours(text[found.end() :])).strip()
    return f"{found['time']}: {found['doing'] or 'not to be seen from outside'}\n{stack}".strip()


def without_ours(stack: str) -> str:
    """`stack` without the thread that every recorded process has."""
    threads: list[list[str]] = [[]]
    for line in stack.splitlines():
        if THREAD_LINE in line:
            threads.append([])
        threads[-1].append(line)
    return "\n".join("\n".join(lines).strip("\n") for lines in threads if not any(_HEART in line for line in lines))
