"""Whether a process ends because somebody sent it a signal, and where it was then: Ctrl-C, or a handler that leaves.

Such an end says that somebody wanted it to end, and nothing of what the rank would have done next.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from rankdrill.boundary.callsites import owner_of, raise_site
from rankdrill.step import Site
from rankdrill.whose import Whose

__all__ = ["interrupted_by", "interrupted_here"]


def interrupted_here(depth: int = 1) -> tuple[Site | None] | None:
    """The line of the user's at which a signal came that is being handled by the caller at `depth`, or around it.

    None where none is; the line may be unknown.
    """
    frame: FrameType | None = sys._getframe(depth)
    handlers = _codes_of_handlers()
    while frame is not None and not (frame.f_code in handlers and _handles_a_signal(frame)):
        frame = frame.f_back
    return None if frame is None else (_line_around(frame.f_back),)


def interrupted_by(error: BaseException, trace: TracebackType | None) -> tuple[Site | None] | None:
    """The same, of `error`: whether a signal's handler has raised it."""
    if isinstance(error, KeyboardInterrupt):
        return (raise_site(trace),)
    handlers = _codes_of_handlers()
    while trace is not None:
        if trace.tb_frame.f_code in handlers and _handles_a_signal(trace.tb_frame):
            return (_line_around(trace.tb_frame.f_back),)
        trace = trace.tb_next
    return None


def _codes_of_handlers() -> set[CodeType]:
    return {code for number in signal.valid_signals() for code in _codes_of(signal.getsignal(number))}


def _codes_of(handler: Any) -> Iterator[CodeType]:
    while isinstance(handler, functools.partial):
        handler = handler.func
    for function in (getattr(handler, "__func__", handler), getattr(type(handler), "__call__", None)):  # noqa: B004
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _handles_a_signal(frame: FrameType) -> bool:
    """Whether Python has called it for a signal: with the frame that was interrupted. The script may call it, too."""
    code, known = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    given = [known.get(name) for name in code.co_varnames[:count]]
    return any(
        each is frame.f_back or (isinstance(each, tuple) and any(one is frame.f_back for one in each)) for each in given
    )


def _line_around(frame: FrameType | None) -> Site | None:
    while frame is not None:
        if owner_of(frame.f_code) is Whose.USER:
            return Site(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name)
        frame = frame.f_back
    return None
