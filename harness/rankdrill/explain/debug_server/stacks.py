"""What the server tells of the ranks' Python stacks: where each rank is, and in which call of torch.distributed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rankdrill.explain.flight.columns import MOST_RANKS
from rankdrill.explain.flight.frames import HANDS_ON, site_of
from rankdrill.step import Site

__all__ = ["Stack", "sections_of", "stack_of", "stacks_of"]

MOST_FRAMES = 1000  # of one thread
_SECTION = re.compile(r"^=== Rank (\d{1,7}): [^\n]* ===$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^  File "([^\n]*)", line (\d{1,9}) in ([^\n]*)$', re.MULTILINE)
_ERROR = re.compile(r"Error: (\d{3})$")
_CALLS = re.compile(r"[/\\]torch[/\\]distributed[/\\]distributed_c10d\.py$")
_OF_A_THREAD = "_bootstrap"  # the outermost frame of all threads but the first


@dataclass(frozen=True)
class Stack:
    """Where a rank is: the line of the user's own code, and the call of torch.distributed it is in, if it is in one.

    `text` is the stack as it stands there; with `error` the rank did not answer.
    """

    site: Site | None = None
    call: str = ""
    text: str = ""
    error: str = ""

    @property
    def where(self) -> str:
        return f", at {self.site}" if self.site is not None else ""


def stacks_of(text: str) -> dict[int, Stack]:
    """The stacks in a file of stacks, by rank."""
    return {rank: stack_of(said) for rank, said in sections_of(text)}


def sections_of(text: str) -> Iterator[tuple[int, str]]:
    """What each rank has said, of a file in which all ranks have a part."""
    found = [match for match in _SECTION.finditer(text) if int(match[1]) < MOST_RANKS]
    ends = [*(match.start() for match in found), len(text)][1:]
    for match, end in zip(found, ends, strict=False):
        yield int(match[1]), text[match.end() : end].strip()


def stack_of(said: str) -> Stack:
    """The stack of the rank that has said this: that of its first thread."""
    if error := _ERROR.match(said):
        return Stack(error=f"status {error[1]}")
    starts = [match.start() for match in _THREAD.finditer(said)] or [0]
    threads = [list(_frames(said[start:end])) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    first = [frames for frames in threads if frames and frames[-1]["name"] != _OF_A_THREAD]
    if not first:
        return Stack(text=said)
    frames = first[-1]
    calls = [str(frame["name"]) for frame in frames if _CALLS.search(frame["filename"])]
    public = [name for name in calls if not name.startswith("_") and name not in HANDS_ON]
    shown = (f'  File "{frame["filename"]}", line {frame["line"]} in {frame["name"]}' for frame in frames)
    return Stack(site_of(frames), public[-1] if public else "", "\n".join(("(most recent call first):", *shown)))


def _frames(text: str) -> Iterator[Mapping[str, Any]]:
    for number, match in enumerate(_FRAME.finditer(text)):
        if number == MOST_FRAMES:
            return
        yield {"filename": match[1], "line": int(match[2]), "name": match[3]}
