"""Work handed to other threads: what is called there is called by the lines that led to the one that handed it over.

``pool.submit(dist.all_reduce, tensor)`` runs with no line of the user's around it, and a function of the user's own has
none around that. So what is handed to a pool of threads, or begins one, is called inside of functions that lie, for
whoever looks at the stack, in these lines: call sites and tracebacks show them. Their names say that they handed it
over: they may have gone on since.

And what is done there is watched: whether it uses memory that a call works on which another thread has issued.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import CodeType, FunctionType
from typing import Any

from rankdrill.boundary.callsites import call_site, owner_of
from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.layers import C10D
from rankdrill.boundary.patch import Patch
from rankdrill.step import HANDED_OVER, Site
from rankdrill.whose import Whose, whose_file

__all__ = ["submission_patches"]

MOST_LINES = 1024  # of which the functions are kept
_ON_THE_FIRST_LINE = 0x80 | 13 << 3  # of a table of lines: an entry that tells no columns, and goes on by 0 lines
_LONGEST = 8  # of an entry, in units of code


def submission_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes calls of other threads calls of the lines that handed them over."""
    yield Patch(ThreadPoolExecutor, "submit", functools.partial(_from_its_line, boundary))
    yield Patch(threading.Thread, "start", functools.partial(_started_by_its_line, boundary))


def _from_its_line(boundary: Boundary, original: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(original)
    def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        __tracebackhide__ = True
        boundary.handed_over = True
        attended = (functools.partial(_attended, boundary),) if _may_issue(fn) else ()
        return original(self, *attended, *_through(call_site()), fn, *args, **kwargs)

    return submit


def _started_by_its_line(
    boundary: Boundary, original: Callable[[threading.Thread], None]
) -> Callable[[threading.Thread], None]:
    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        __tracebackhide__ = True
        body = getattr(self, "_target", None) if type(self).run is threading.Thread.run else type(self).run
        # A timer that ends the process, by `os._exit` say, has no line of the user's at all.
        if not (isinstance(self, threading.Timer) or _may_issue(body)) or "run" in vars(self):
            return original(self)
        boundary.handed_over = True
        through, run = _through(call_site()), self.run

        def run_there() -> None:
            del vars(self)["run"]
            try:
                _attended(boundary, *through, run)
            except Exception as error:
                if boundary.on_ended_thread is not None:
                    boundary.on_ended_thread(error)
                raise

        self.run = run_there  # type: ignore[method-assign]
        try:
            return original(self)
        except BaseException:  # it has been started before, say
            vars(self).pop("run", None)
            raise

    return start


def _may_issue(body: Any) -> bool:
    """Whether it is a function of the user's, or one by which torch issues a collective."""
    inner = inspect.unwrap(body) if isinstance(body, FunctionType) else body
    codes = [code for each in (body, inner) if isinstance(code := getattr(each, "__code__", None), CodeType)]
    return any(owner_of(code) is Whose.USER or code.co_filename == C10D for code in codes)


def _attended(boundary: Boundary, called: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    __tracebackhide__ = True
    handles = boundary.handles
    if handles is None:
        return called(*args, **kwargs)
    handles.attend()
    try:
        return called(*args, **kwargs)
    finally:
        handles.leave()


def _through(site: Site | None) -> list[Callable[..., Any]]:
    """Functions that lie in `site` and its callers, the outermost first: each calls what it is given, with the rest."""
    found: list[Callable[..., Any]] = []
    while site is not None and whose_file(site.file) is Whose.USER:
        found.append(_in_line(site.file, site.line, site.function))
        site = site.caller
    return found[::-1]


@functools.lru_cache(MOST_LINES)
def _in_line(file: str, line: int, function: str) -> Callable[..., Any]:
    """A function that calls what it is given, and is in that line."""
    name = function + HANDED_OVER
    code = (lambda called, /, *args, **kwargs: called(*args, **kwargs)).__code__
    units = len(code.co_code) // 2
    table = bytearray()
    for length in (min(_LONGEST, units - at) for at in range(0, units, _LONGEST)):
        table += bytes((_ON_THE_FIRST_LINE | length - 1, 0))
    placed = code.replace(
        co_filename=file, co_firstlineno=line, co_name=name, co_qualname=name, co_linetable=bytes(table)
    )
    return FunctionType(placed, {}, name)
