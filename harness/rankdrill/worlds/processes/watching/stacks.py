"""The stacks of ranks that are stuck: `faulthandler` prints them by signal, whoever holds the GIL."""

from __future__ import annotations

import linecache
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import thread
from pathlib import Path
from types import ModuleType

from rankdrill.diagnosis import name_ranks
from rankdrill.whose import Whose, torch_folder, whose_file
from rankdrill.worlds.processes.client import RankHandle, TemplateClient
from rankdrill.worlds.processes.streams import ASKED_BY

__all__ = ["THREAD_LINE", "count_threads", "of_the_body", "stacks_in", "stacks_of", "where_ranks_are"]

STACKS_S = 0.5  # for a stuck rank to print its stacks
MORE_S = 0.01  # for each rank: they share the processors
POLL_S = 0.005
THREAD_LINE = "hread 0x"  # begins each thread's part of faulthandler's dump
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
# Where a thread is, from the inside out, that has set no timeout: of these places each that sets one is another line.
_UNTIL_WOKEN: tuple[tuple[tuple[ModuleType | None, str], ...], ...] = (
    ((thread, "work_item = work_queue.get(block=True)"),),
    ((threading, "waiter.acquire()"),),
    ((threading, "if lock.acquire(block, timeout):"), (threading, "self._wait_for_tstate_lock()")),
    ((threading, "self._handle.join(timeout)"), (None, ".join()")),  # since Python 3.13: whoever calls it says
)
_PACKAGES = f"{os.sep}site-packages{os.sep}"
_DISTRIBUTED = os.path.join(torch_folder(), "distributed", "")
# Frames below the body: rankdrill's own, pytest's and what runs a script, the same for every rank.
_NOT_THE_BODY = (
    str(Path(__file__).parents[3]),
    "/_pytest/",
    "/pluggy/",
    '"<string>", line 1',
    '"<frozen runpy>"',
)


def stacks_of(client: TemplateClient, ranks: Sequence[RankHandle], directory: Path) -> dict[int, str]:
    """What each of `ranks` prints when asked for the stacks of all its threads; nothing where it cannot in time."""
    files = {handle.rank: directory / f"rank-{handle.rank}.stacks" for handle in ranks}
    return stacks_in(files, lambda: client.kill(list(ranks), ASKED_BY))


def stacks_in(files: Mapping[int, Path], ask: Callable[[], None]) -> dict[int, str]:
    """What ranks write to their `files` once `ask` has asked them for it; nothing where one cannot in time."""
    sizes = {rank: _size(path) for rank, path in files.items()}
    ask()
    until = time.monotonic() + STACKS_S + MORE_S * len(files)
    while time.monotonic() < until and any(_size(path) == sizes[rank] for rank, path in files.items()):
        time.sleep(POLL_S)
    time.sleep(POLL_S)  # the last lines of a dump follow its first at once
    return {
        rank: path.read_bytes()[sizes[rank] :].decode("utf-8", "replace")
        for rank, path in files.items()
        if path.exists()
    }


def count_threads(stack: str, *, in_collectives: bool = False) -> int:
    """How many Python threads a rank has, from its stacks, that may do something before another thread of it does.

    Others wait without a timeout: for work that is handed to their pool, or for a future, an event or a queue. And what
    a library keeps running beside the program, be it to refresh a progress bar, does nothing `in_collectives`.
    """
    threads = [_frames_in(frames) for frames in stack.split(THREAD_LINE)[1:]]
    return sum(not _is_to_be_woken(found) and not (in_collectives and _keeps_house(found)) for found in threads)


def _frames_in(frames: str) -> list[tuple[str, int]]:
    return [(match["file"], int(match["line"])) for match in _FRAME.finditer(frames)]


def _keeps_house(found: Sequence[tuple[str, int]]) -> bool:
    """Whether a package's own code runs there, and calls nothing of the user's or of torch.distributed.

    Not where all is of Python's standard library: a timer of that may be the user's.
    """
    files = [file for file, _ in found]
    others = any(whose_file(file) is Whose.USER or file.startswith(_DISTRIBUTED) for file in files)
    return not others and any(_PACKAGES in file for file in files)


def _is_to_be_woken(found: Sequence[tuple[str, int]]) -> bool:
    return any(
        len(found) >= len(places) and all(_is_at(at, *place) for at, place in zip(found, places, strict=False))
        for places in _UNTIL_WOKEN
    )


def _is_at(at: tuple[str, int], module: ModuleType | None, text: str) -> bool:
    """Whether that line of `module` begins so; of None, whether that line of any file says so."""
    file, line = at
    there = linecache.getline(file, line).strip()
    return text in there if module is None else file == module.__file__ and there.startswith(text)


def of_the_body(stack: str) -> str:
    """`stack` without the frames that every rank has below its body."""
    return "\n".join(line for line in stack.splitlines() if not any(own in line for own in _NOT_THE_BODY))


def where_ranks_are(stacks: Mapping[int, str]) -> str:
    """Where ranks with these stacks are, for a reader: those at the same place together."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        alike.setdefault(_frames(stack), []).append(rank)
    lines: list[str] = []
    for frames, ranks in alike.items():
        where = "at (innermost call first):" if frames else "in no line of the user's"
        lines.append(f"{name_ranks(ranks)} {where}")
        lines.extend(f"  {frame}" for frame in frames)
    return "\n".join(lines)


def _frames(stack: str) -> tuple[str, ...]:
    """The frames of a test in `stack`, those of its other threads after a heading."""
    found: list[str] = []
    heading = ""
    for line in of_the_body(stack).splitlines():
        if THREAD_LINE in line:
            heading = "" if line.startswith("Current thread") else "another thread (innermost call first):"
        elif line.strip():
            found += [heading, line.strip()] if heading else [line.strip()]
            heading = ""
    return tuple(found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
