"""What the kernel tells of a process that sleeps in it: through which of its functions it came to where it waits."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

__all__ = ["kernel_stack", "waits_in"]

MOST_FUNCTIONS = 6  # innermost first: further out stands what every system call has in common
_FRAME = re.compile(r"^\[<[0-9a-f]+>\] ([\w.]+)\+", re.MULTILINE)
_ENTRIES = (
    "do_syscall_",
    "__do_sys_",
    "__x64_sys_",
    "__arm64_sys_",
    "entry_",
    "el0",
    "invoke_syscall",
    "ret_from_fork",
)


def kernel_stack(pid: int) -> tuple[str, ...]:
    """The kernel's functions that the main thread is in, innermost first; nothing where it does not say.

    Only root may ask, and not in every container.
    """
    found = _FRAME.findall(_read(f"/proc/{pid}/stack"))
    return tuple(takewhile(lambda function: not function.startswith(_ENTRIES), found))[:MOST_FUNCTIONS]


def waits_in(pid: int) -> str:
    """The kernel's function that the main thread sleeps in; nothing where that is not to be known, or it runs."""
    told = _read(f"/proc/{pid}/wchan").strip("\0\n")
    return told if told != "0" else next(iter(kernel_stack(pid)), "")


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
