"""Work handed to a pool of threads, as a function of torch's: what it calls is called by the line that handed it over.

``pool.submit(dist.all_reduce, tensor)`` runs with no line of the user's around it. So what is no code of the user's own
is handed over inside of a function that lies, for whoever looks at the stack, in the line that called ``submit``: call
sites and tracebacks show that. A function of the user's own says itself where it is, and is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import CodeType, FunctionType
from typing import Any

from rankdrill.boundary.callsites import call_site, owner_of
from rankdrill.boundary.patch import Patch
from rankdrill.whose import Whose, whose_file

__all__ = ["submission_patches"]

MOST_LINES = 1024  # of which the functions are kept
_ON_THE_FIRST_LINE = 0x80 | 13 << 3  # of a table of lines: an entry that tells no columns, and goes on by 0 lines
_LONGEST = 8  # of an entry, in units of code


def submission_patches() -> Iterator[Patch]:
    """What makes calls that a pool of threads makes calls of the line that submitted them."""
    yield Patch(ThreadPoolExecutor, "submit", _from_its_line)


def _from_its_line(original: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(original)
    def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        __tracebackhide__ = True
        code = getattr(fn, "__code__", None)
        site = None if isinstance(code, CodeType) and owner_of(code) is Whose.USER else call_site()
        if site is None or whose_file(site.file) is not Whose.USER:
            return original(self, fn, *args, **kwargs)
        return original(self, _in_line(site.file, site.line, site.function), fn, *args, **kwargs)

    return submit


@functools.lru_cache(MOST_LINES)
def _in_line(file: str, line: int, function: str) -> Callable[..., Any]:
    """A function that calls what it is given, and is in that line."""
    code = (lambda called, /, *args, **kwargs: called(*args, **kwargs)).__code__
    units = len(code.co_code) // 2
    table = bytearray()
    for length in (min(_LONGEST, units - at) for at in range(0, units, _LONGEST)):
        table += bytes((_ON_THE_FIRST_LINE | length - 1, 0))
    placed = code.replace(
        co_filename=file, co_firstlineno=line, co_name=function, co_qualname=function, co_linetable=bytes(table)
    )
    return FunctionType(placed, {}, function)
