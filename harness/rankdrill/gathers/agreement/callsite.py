"""Where a gather was called from, and whether two ranks can be in the same call at all.

Ranks may call from different lines: ``if rank == 0: gather_object(x, out) else: gather_object(x)`` is one call. A rank
that skipped or repeated a call looks the same to call numbers, but then one of the two places comes *after* the other
in the program. `comes_after_or_before` decides this from the bytecode of the innermost function that both stacks share:
two places on branches that exclude each other are one call, a place that the other leads to is another call. Backward
jumps are left out, so turns of one loop cannot be told apart.
"""

from __future__ import annotations

import bisect
import dis
import functools
import os
import sys
import zlib
from dataclasses import dataclass
from types import CodeType, FrameType

__all__ = ["FRAMES_SENT", "CallPlace", "Frame", "capture"]

# (which function, which instruction in it)
Frame = tuple[int, int]

# The innermost frames that travel with each call; 8 bytes each.
FRAMES_SENT = 12

_GATHERS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_RANKDRILL = os.path.dirname(os.path.dirname(_GATHERS)) + os.sep


@dataclass(frozen=True)
class CallPlace:
    """A position in the program: `depth` frames deep, of which the innermost are in `frames`, outermost first.

    `codes` are the functions of `frames`; empty where the place came from another rank.
    """

    site: str
    depth: int
    frames: tuple[Frame, ...]
    codes: tuple[CodeType, ...] = ()

    def comes_after_or_before(self, other: CallPlace) -> bool:
        """Whether one place leads to the other, so that they are two calls. `self` must be this rank's own."""
        first, others_first = self.depth - len(self.frames), other.depth - len(other.frames)
        for level in range(max(first, others_first), min(self.depth, other.depth)):
            mine, others = self.frames[level - first], other.frames[level - others_first]
            if mine == others:
                continue
            if mine[0] != others[0] or not self.codes:
                return False
            code = self.codes[level - first]
            return leads_to(code, mine[1], others[1]) or leads_to(code, others[1], mine[1])
        return False


def capture() -> CallPlace:
    """The place outside the gathers that this is called from."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_plumbing(frame):
        frame = frame.f_back
    site = _site(frame)
    frames: list[Frame] = []
    codes: list[CodeType] = []
    depth = 0
    while frame is not None:
        if depth < FRAMES_SENT:
            frames.append(_frame(frame.f_code, frame.f_lasti))
            codes.append(frame.f_code)
        depth += 1
        frame = frame.f_back
    return CallPlace(site, depth, tuple(reversed(frames)), tuple(reversed(codes)))


@functools.lru_cache(maxsize=256)
def leads_to(code: CodeType, start: int, goal: int) -> bool:
    """Whether control can get from one instruction of `code` to a later one without jumping back."""
    reached = {start}
    previous_falls_through = False
    for instruction in dis.get_instructions(code):
        offset = instruction.offset
        if offset < start:
            continue
        if previous_falls_through:
            reached.add(offset)
        previous_falls_through = offset in reached and not _never_falls_through(instruction.opname)
        if offset in reached and instruction.opcode in _JUMPS and instruction.argval > offset:
            reached.add(instruction.argval)
    return goal != start and goal in reached


@functools.lru_cache(maxsize=1024)
def _frame(code: CodeType, position: int) -> Frame:
    return _code_id(code), _instruction(code, position)


def _instruction(code: CodeType, position: int) -> int:
    """Where the instruction at `position` starts; a frame may stand in its inline cache, depending on past calls."""
    starts = _starts(code)
    return starts[bisect.bisect_right(starts, position) - 1]


@functools.lru_cache(maxsize=1024)
def _starts(code: CodeType) -> list[int]:
    return [instruction.offset for instruction in dis.get_instructions(code)]


_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


def _never_falls_through(opname: str) -> bool:
    return opname.startswith(("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")) or (
        "JUMP" in opname and "IF" not in opname
    )


def _is_plumbing(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_GATHERS) or name.endswith(f"{os.sep}contextlib.py")


def _site(frame: FrameType | None) -> str:
    """File and line of the caller, and of its caller: a helper's line alone does not tell two calls apart."""
    if frame is None:
        return "?"
    outside: FrameType | None = frame
    while outside is not None and outside.f_code.co_filename.startswith((_RANKDRILL, "<")):
        outside = outside.f_back
    shown = outside or frame
    site = f"{shown.f_code.co_filename}:{shown.f_lineno}"
    above = shown.f_back
    if above is None or above.f_code.co_filename != shown.f_code.co_filename:
        return site
    return f"{site} (called from line {above.f_lineno})"


@functools.lru_cache(maxsize=1024)
def _code_id(code: CodeType) -> int:
    name = f"{os.path.basename(code.co_filename)}:{code.co_qualname}:{code.co_firstlineno}"
    return zlib.crc32(name.encode("utf-8", "surrogatepass"))
