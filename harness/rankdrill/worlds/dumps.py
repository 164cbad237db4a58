"""Reads the stacks that `faulthandler` prints: which line of the user's each thread was at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rankdrill.step import HANDED_OVER, Site
from rankdrill.whose import Whose, whose_file

__all__ = ["innermost_site", "sections", "threads_in"]

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_THREAD = re.compile(r"^(?P<current>Current t|T)hread 0x")
_ESCAPED = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")
_TEMPLATE = "<string>"  # the command that every rank is forked from: outermost on its main thread


def sections(dump: str) -> Iterator[tuple[bool, list[Site]]]:
    """For each thread whether it is the current one, and its frames, innermost first, all but rankdrill's own."""
    current, frames, inside = False, list[Site](), False
    for line in dump.splitlines():
        heading = _THREAD.match(line)
        if heading is not None:
            if inside:
                yield current, frames
            current, frames, inside = heading["current"] != "T", [], True
        elif inside and (found := _FRAME.match(line)) is not None:
            name = _unescaped(found["function"])
            via = HANDED_OVER if name.endswith(HANDED_OVER) else ""
            site = Site(_unescaped(found["file"]), int(found["line"]), name.removesuffix(HANDED_OVER), via)
            if whose_file(site.file) is not Whose.OURS and (site.file, site.line) != (_TEMPLATE, 1):
                frames.append(site)
    if inside:
        yield current, frames


def threads_in(dump: str) -> list[list[Site]]:
    """The frames of each thread, innermost first: all but rankdrill's own, and those that handed over its work."""
    return [[site for site in frames if site.via != HANDED_OVER] for _, frames in sections(dump)]


def innermost_site(dump: str, *, current: bool = True, callers: bool = False) -> Site | None:
    """The innermost line of the user's on the thread that `dump` calls current, failing that of a library.

    With `callers` it has the user's lines further out as its callers: of a helper they say for whom it waits.

    None where no thread is: what struck did so on a thread that runs no Python. A process that was only asked where
    it is need not have one; without `current` the last thread listed, the main one, stands in for it.
    """
    listed = list(sections(dump))
    frames = next((frames for is_current, frames in listed if is_current), None)
    if frames is None and not current and listed:
        frames = listed[-1][1]
    users = [site for site in frames or () if whose_file(site.file) is Whose.USER] or list(frames or ())[:1]
    return _chained(users if callers else users[:1])


def _chained(frames: list[Site]) -> Site | None:
    """The first of `frames`, each called by the one after it."""
    site: Site | None = None
    for frame in reversed(frames):
        site = replace(frame, caller=site)
    return site


def _unescaped(text: str) -> str:
    """As it was: the fault handler spells what is not ASCII with backslashes."""
    return _ESCAPED.sub(lambda found: chr(int(found[0][2:], 16)), text)
