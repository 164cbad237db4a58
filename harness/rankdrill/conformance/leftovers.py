"""What a call left behind: in the rank's process, and on disk."""

from __future__ import annotations

import fnmatch
import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch

from rankdrill.faults.content import LEFT_OVER

__all__ = ["Belongings", "files_left", "is_planted", "randomness"]

_SEGMENTS = "/dev/shm/"


@dataclass(frozen=True)
class Belongings:
    """What a rank's process holds that a gather must not change: open files, mapped segments, random state."""

    open_files: Counter[str]
    segments: frozenset[str]
    randomness: tuple[int, int, int]

    @classmethod
    def now(cls, *, shared_memory: bool) -> Belongings:
        """Look at this process. Mapped segments are looked for only with `shared_memory`: it takes milliseconds."""
        return cls(Counter(_open_files()), frozenset(_segments() if shared_memory else ()), randomness())

    def left_since(self, before: Belongings) -> tuple[str, ...]:
        """What is here now and was not before, one line each."""
        left = [f"open file {path}" for path in sorted((self.open_files - before.open_files).elements())]
        left += [f"mapped segment {name}" for name in sorted(self.segments - before.segments)]
        names = ("random", "numpy.random", "torch")
        pairs = zip(names, self.randomness, before.randomness, strict=True)
        left += [f"the global generator of {name} advanced" for name, now, then in pairs if now != then]
        return tuple(left)


def _open_files() -> Iterable[str]:
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # the listing's own
        if target.startswith("/") and not target.startswith("/proc/"):
            yield target
        elif target.startswith("pipe:"):
            yield "pipe"  # a gather that replaces its process group has other pipes then, and not more of them


def _segments() -> Iterable[str]:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if _SEGMENTS in line:
                yield line[line.index(_SEGMENTS) :].strip().removesuffix(" (deleted)")


def randomness() -> tuple[int, int, int]:
    """What tells whether a global generator has advanced: Python's, numpy's, torch's."""
    of_numpy: Any = numpy.random.get_state(legacy=True)
    # The generators' positions and words; a hash, as states are long.
    return (
        hash(random.getstate()),
        hash((of_numpy[1].tobytes(), of_numpy[2])),
        hash(torch.random.get_rng_state().numpy().tobytes()),
    )


def is_planted(path: Path) -> bool:
    """Whether a strike put this file there: not the gather's own, so not the gather's to remove."""
    try:
        return path.stat().st_size == len(LEFT_OVER) and path.read_bytes() == LEFT_OVER
    except OSError:
        return False  # a link to nowhere, say


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def files_left(directory: str, keeps: Iterable[str], *, empty: bool = False) -> tuple[str, ...]:
    """Files below `directory`, relative to it, that match none of `keeps`; directories with nothing in them, too, if
    also what is `empty` is asked for.
    """
    patterns = tuple(keeps)
    found = [path for path in Path(directory).rglob("*") if not path.is_dir() and not is_planted(path)]
    names = [str(path.relative_to(directory)) for path in found]
    if empty:
        names += (f"{path.relative_to(directory)}/" for path in Path(directory).rglob("*") if _is_empty(path))
    return tuple(sorted(name for name in names if not any(fnmatch.fnmatch(name, each) for each in patterns)))
