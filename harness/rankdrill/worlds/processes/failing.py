"""An error that a rank was handling when it called a collective: where it is, and through what it has come, as a line.

The rank writes it down, and its controller reads it once the run is over, if anything was found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, TracebackType

from rankdrill.diagnosis.way_out import Failure, Left
from rankdrill.step import HANDED_OVER, Site, Step
from rankdrill.whose import Whose, whose_file

__all__ = ["FAILING", "ended_by", "failure_of", "failures_in", "written"]

FAILING = "failing at "  # begins such a line; when (monotonic clock, ns) and what follow
MOST_FRAMES = 200  # looked at
MOST_FUNCTIONS = 16  # told of


def failure_of(step: Step, error: BaseException, raised: Site | None) -> Failure:
    """What this thread does, which calls `step` and handles `error`, `raised` in that line."""
    through = tuple(_running(sys._getframe(1), error.__traceback__))
    return Failure(_words(error), _types(error), raised, step.call, step.site, through[:MOST_FUNCTIONS])


def ended_by(error: BaseException, raised: Site | None, thread: str) -> Failure:
    """The end of a `thread` of that name by `error`, `raised` in that line."""
    through = [
        Left(frame.tb_frame.f_code.co_filename, frame.tb_frame.f_code.co_name, frame.tb_lineno, frame.tb_lineno)
        for frame in _frames(error.__traceback__)
        if whose_file(frame.tb_frame.f_code.co_filename) is Whose.USER
    ]
    return Failure(_words(error), _types(error), raised, "", None, tuple(through[-MOST_FUNCTIONS:]), thread)


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]


def _types(error: BaseException) -> tuple[str, ...]:
    return tuple(each.__name__ for each in type(error).__mro__ if each is not object)


def _running(frame: FrameType | None, traceback: TracebackType | None) -> Iterator[Left]:
    """The user's functions that `frame` runs in, from the innermost of those on that `traceback` leads through.

    Into those further out the error has still to come, from where they are.
    """
    failed: dict[int, int] = {}
    while traceback is not None:
        failed[id(traceback.tb_frame)] = traceback.tb_lineno
        traceback = traceback.tb_next
    met = False
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        code, now = frame.f_code, frame.f_lineno or 0
        met = met or id(frame) in failed
        if code.co_name.endswith(HANDED_OVER):  # in a thread of its own it comes no further
            return
        if met and whose_file(code.co_filename) is Whose.USER:
            yield Left(code.co_filename, code.co_name, failed.get(id(frame), now), now)
        frame = frame.f_back


def written(failure: Failure) -> str:
    """`failure` in one line."""
    through = [[left.file, left.function, left.failed, left.now] for left in failure.through]
    places = [_place(failure.raised), _place(failure.site)]
    return json.dumps([failure.error, failure.types, failure.call, *places, through, failure.thread])


def failures_in(text: str, since_ns: int) -> tuple[Failure, ...]:
    """Those that were written into `text` at that time or later, in their order."""
    found: list[Failure] = []
    for line in text.splitlines():
        if line.startswith(FAILING):
            with suppress(ValueError, TypeError):  # the rank was killed as it wrote
                at_ns, _, told = line.removeprefix(FAILING).partition(": ")
                error, types, call, raised, site, through, thread = json.loads(told)
                if int(at_ns) >= since_ns:
                    lefts = tuple(Left(*each) for each in through)
                    found.append(Failure(error, tuple(types), _site(raised), call, _site(site), lefts, thread))
    return tuple(found)


def _place(site: Site | None) -> list[str | int] | None:
    return [site.file, site.line, site.function] if site is not None else None


def _site(place: list[str | int] | None) -> Site | None:
    return Site(str(place[0]), int(place[1]), str(place[2])) if place else None
