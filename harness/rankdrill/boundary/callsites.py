"""Where in the user's own code a call was made, and which public function of torch's, or gather, was called there.

A call site is the first frame outward that is the user's: not of torch, not of rankdrill, not of the standard library,
and not installed in ``site-packages``. Where there is none, as in a framework's own worker thread, it is the frame of
the library that called torch. What DDP's reducer and other C++ issue from within ``backward()`` is made by the line
that called ``backward()``; also on a GPU, where that is done in a thread of the engine's own, above which nothing is.

The public function is the outermost of torch's frames between that line and the collective, those of ``c10d`` itself
before others: ``all_gather_object``, ``DistributedDataParallel.forward``, ``Tensor.backward``.

Of the user's function its callers are looked for too, the next frames outward that are the user's, but not past what
runs tests: many wrap collectives in helpers of their own, and the line of a helper says little.

The lines of libraries that lie between are kept beside, as `Site.whole`: where ranks part within a framework's trainer,
all of them are at the one line of the user's that called it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from types import CodeType, FrameType, TracebackType

from rankdrill.boundary.layers import layer_of
from rankdrill.boundary.public_names import how_telling, spoken
from rankdrill.native import hot
from rankdrill.step import HANDED_OVER, Site
from rankdrill.whose import Whose, is_of_python, whose_file

__all__ = ["MOST_FRAMES", "call_site", "called_by_user", "frame_at", "owner_of", "passes", "raise_site"]

MOST_FRAMES = 200  # looked at; frameworks nest some dozens
MOST_CALLERS = 12  # layers of the user's own: a trainer, its strategy, that one's plugin, a helper
MOST_BETWEEN = 40  # frames between a user's function and its caller; a module's call makes two, a trainer some thirty
MOST_OF_LIBRARIES = 40  # frames of libraries that are kept, the innermost
MOST_KNOWN = 1 << 14  # functions and call sites remembered: code may be made anew for every call
_MODES = frozenset({"__torch_function__", "__torch_dispatch__"})  # a call passes through there, from elsewhere
_RUNNERS = frozenset({"pytest_pyfunc_call", "_callTestMethod"})  # who calls a test is of no interest
_USER, _LIBRARY, _TORCH, _OURS = Whose.USER, Whose.LIBRARY, Whose.TORCH, Whose.OURS
# By identity, since Python hashes a function's whole code each time: whose each is, how much it says of what the user
# called, and the code, so that no other one is ever found in its place. In one entry, for threads that meet a function
# first at the same time: another one sees all or nothing.
_known: dict[int, tuple[Whose, int, CodeType]] = {}
_sites: dict[Hashable, tuple[Site, tuple[CodeType | None, ...]]] = {}
passes: list[FrameType] = []
"""The frames that run a backward pass right now, the innermost last: for what is called in a thread of the engine's."""


def frame_at(depth: int) -> FrameType | None:
    """The caller's frame at `depth`, or None: above what C++ calls in a thread of its own there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(depth):
        if frame is None:
            break
        frame = frame.f_back
    return frame


def plain_call_site(depth: int = 1) -> Site | None:
    """The user's line that led to the caller's caller at `depth`; None where only C++ is above it."""
    frame = frame_at(depth)
    running = tuple(passes)  # of which another thread's may end meanwhile
    left = len(running)
    outermost: CodeType | None = None  # of torch's, or a gather
    telling = 0
    libraries: list[FrameType] = []
    known = _known
    for _ in range(MOST_FRAMES):
        if frame is None and left and not libraries:
            frame = running[left - 1]
        if frame is None:
            break
        if left and frame in running:
            left = running.index(frame)
        code = frame.f_code
        whose, tells, _code = known.get(id(code)) or _classify(code)
        if whose is _USER:
            if _is_the_template(frame):
                break
            return _site([*libraries[:MOST_OF_LIBRARIES], frame], outermost, running)
        if whose is _LIBRARY:
            libraries.append(frame)
        elif tells and tells >= telling and not libraries:
            outermost, telling = code, tells
        frame = frame.f_back
    return _found(libraries[:1], outermost) if libraries else None


def _site(frames: list[FrameType], via: CodeType | None, running: Sequence[FrameType]) -> Site:
    """The site of the user's frame, the last of `frames`, with those around it."""
    outer = _callers_of(frames[-1], running, MOST_OF_LIBRARIES + 1 - len(frames))
    return _found([*frames, *outer], via)


def _callers_of(frame: FrameType, running: Sequence[FrameType], room: int) -> Sequence[FrameType]:
    """The user's frames around that of the user's, the innermost first, and those of libraries in between, for which
    there is so much `room`; none where a test begins there, or a body.
    """
    found: list[FrameType] = []
    users = count = 0  # of the user's, and how many are found up to the last of them
    outer, between = frame.f_back, 0
    left, library = len(running), False
    while between < MOST_BETWEEN and users < MOST_CALLERS:
        if outer is None and left and not library:  # in a thread of the engine's own
            outer = running[left - 1]
        if outer is None:
            break
        if left and outer in running:
            left = running.index(outer)
        code = outer.f_code
        whose, _tells, _code = _known.get(id(code)) or _classify(code)
        if whose is _USER:
            if _is_the_template(outer):
                break
            found.append(outer)
            between, users, count = 0, users + 1, len(found)
        elif (whose is _OURS and outer not in running) or (whose is _LIBRARY and code.co_name in _RUNNERS):
            break
        else:
            between += 1
            library = library or whose is _LIBRARY
            if whose is _LIBRARY and len(found) - users < room:
                found.append(outer)
        outer = outer.f_back
    return found[:count]


def raise_site(traceback: TracebackType | None) -> Site | None:
    """The innermost line of the user's that `traceback` leads through; None where there is none."""
    found: Site | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        code = frame.f_code
        if whose_file(code.co_filename) is Whose.USER and not _is_the_template(frame):
            found = Site(code.co_filename, traceback.tb_lineno, _name_of(code))
        traceback = traceback.tb_next
    return found


def called_by_user(depth: int = 1) -> bool:
    """Whether the user called what torch does at `depth`, and not a library."""
    frame: FrameType | None = sys._getframe(depth)
    for _ in range(MOST_FRAMES):
        owner = owner_of(frame.f_code) if frame is not None else Whose.LIBRARY
        if frame is None or owner in (Whose.USER, Whose.LIBRARY):
            return owner is Whose.USER
        frame = frame.f_back
    return False


def owner_of(code: CodeType) -> Whose:
    """Whose function it is."""
    return (_known.get(id(code)) or _classify(code))[0]


def _is_the_template(frame: FrameType) -> bool:
    """Whether it is the command that every rank is forked from."""
    return frame.f_back is None and frame.f_code.co_filename == "<string>"


def _found(frames: Sequence[FrameType], via: CodeType | None) -> Site:
    key: tuple[int, ...] = (id(via),)
    for frame in frames:
        key += (id(frame.f_code), frame.f_lasti)
    found = _sites.get(key)
    return found[0] if found is not None else _meet(key, frames, via)


def _meet(key: Hashable, frames: Sequence[FrameType], via: CodeType | None) -> Site:
    if len(_sites) >= MOST_KNOWN:
        _sites.clear()
    site = _site_of(frames, via)
    # One thread's stays where two meet it at the same time: what is known of a call goes by the identity of its site.
    return _sites.setdefault(key, (site, (via, *(frame.f_code for frame in frames))))[0]


def _site_of(frames: Sequence[FrameType], via: CodeType | None) -> Site:
    """The site that `frames` lead to, the innermost first, and what `via` was called there."""
    users = [frame for frame in frames if owner_of(frame.f_code) is _USER] or frames[:1]
    kept = [frame for frame in frames if frame in users or not is_of_python(frame.f_code.co_filename)]
    site: Site | None = None
    whole: Site | None = None
    for frame in reversed(kept):
        code = frame.f_code
        handed = HANDED_OVER if code.co_name.endswith(HANDED_OVER) else ""
        line = code.co_filename, frame.f_lineno or 0, _name_of(code)
        whole = Site(*line, spoken(via) if frame is kept[0] else handed, whole)
        if frame in users:
            site = Site(*line, spoken(via) if frame is users[0] else handed, site)
    assert site is not None, "one of them is"
    return site if whole == site else replace(site, whole=whole)


def _name_of(code: CodeType) -> str:
    return code.co_name.removesuffix(HANDED_OVER)


def _classify(code: CodeType) -> tuple[Whose, int, CodeType]:
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    whose = whose_file(code.co_filename)
    if whose is Whose.USER and code.co_name in _MODES:
        whose = Whose.LIBRARY
    found = _known[id(code)] = whose, how_telling(code) if whose in (_TORCH, _OURS) else 0, code
    return found


def _told(code: CodeType) -> int:
    """What is known of `code`, for C."""
    whose, tells, _code = _classify(code)
    return whose | tells << 2 | (code.co_name in _RUNNERS) << 4 | layer_of(code) << 5


call_site: Callable[..., Site | None] = plain_call_site if hot is None else hot.CallSites(_told, _meet, _sites, passes)
"""`plain_call_site`, in C if there is one."""
