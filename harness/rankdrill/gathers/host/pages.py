"""Fresh memory, which costs more than the copy into it: the kernel hands it out page by page, zeroed.

In pages of 2 MiB that is next to nothing (64 MB filled in 24 ms instead of 58; Linux 6, huge pages on demand, which is
most distributions' default). But in a virtual machine that reports its free pages, which it does by blocks of that very
size every two seconds, the host has taken such a page back by the time it is wanted again, and hands it out piece by
piece: 150 ms and more. There memory is had in small pages, some at a time just before they are filled (44 ms).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import numpy

__all__ = ["fresh", "parts_to_fill"]

# Below this, none of it pays.
_LARGE_BYTES = 1 << 22
_AT_ONCE_BYTES = 1 << 18
_MADV_POPULATE_WRITE = 23  # Linux 5.14; not yet in `mmap`
_REPORTED_ORDER = "/sys/module/page_reporting/parameters/page_reporting_order"
_NO_ORDER = 64  # without a host to report to, the parameter is -1 or some such as an unsigned number


def _reports_free_pages() -> bool:
    with contextlib.suppress(OSError, ValueError), open(_REPORTED_ORDER) as file:
        return 0 <= int(file.read()) < _NO_ORDER
    return False


_HUGE_PAGES = not _reports_free_pages()
_madvise = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_HUGEPAGE") else None


def fresh(nbytes: int) -> memoryview:
    """New memory, which nobody has written to. Raises MemoryError."""
    block: Any = numpy.empty(nbytes, numpy.uint8)
    view = memoryview(block)
    if not _HUGE_PAGES:
        _advise(view, mmap.MADV_NOHUGEPAGE)  # NumPy asks for huge pages itself
    return view


def parts_to_fill(target: memoryview) -> Iterator[memoryview]:
    """`target`, which is fresh, in parts to be filled one after the other: each is made ready when its turn comes."""
    if target.nbytes < _LARGE_BYTES or _HUGE_PAGES:
        _advise(target, mmap.MADV_HUGEPAGE)
        yield target
        return
    for begin in range(0, target.nbytes, _AT_ONCE_BYTES):
        part = target[begin : begin + _AT_ONCE_BYTES]
        _advise(part, _MADV_POPULATE_WRITE, least_bytes=0)
        yield part


def _advise(target: memoryview, advice: int, least_bytes: int = _LARGE_BYTES) -> None:
    """Advise the kernel on the whole pages in `target`; advice it may refuse."""
    if _madvise is None or target.nbytes < least_bytes:
        return
    start = numpy.frombuffer(target, numpy.uint8).ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + target.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if length > 0:
        _madvise(ctypes.c_void_p(first), ctypes.c_size_t(length), advice)
