"""What a rank reports about one call: a value, or the error it raised."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rankdrill.errors import GatherError

# Generous for a loaded machine; nothing waits this long unless it is broken.
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Raised:
    """An error of a gather: its type's name, the ranks it names, its text."""

    kind: str
    ranks: tuple[int, ...]
    text: str


def attempt(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `call` returns, or a `Raised` if it raised a GatherError."""
    try:
        return call(*args, **kwargs)
    except GatherError as error:
        return Raised(type(error).__name__, error.ranks, str(error))


def wait_for(marks: Sequence[pathlib.Path]) -> None:
    """Until all files are there, or for as long as anything may take."""
    until = time.monotonic() + TIMEOUT_S
    while not all(mark.exists() for mark in marks) and time.monotonic() < until:
        time.sleep(0.01)


def all_alike(values: list[Any]) -> Any:
    """The value that all ranks have."""
    assert all(value == values[0] for value in values), values
    return values[0]


def left_in_shared_memory(pids: Sequence[int]) -> list[str]:
    """What the gathers of the processes `pids` have in shared memory; other tests may be running beside this one."""
    names = [name for name in os.listdir("/dev/shm") if name.startswith("rankdrill-") and name.count("-") == 4]
    return [name for name in names if int(name.split("-")[2]) in pids]


@contextmanager
def replaced(owner: Any, name: str, new: Any, when: bool = True) -> Iterator[None]:
    """`owner.name` is `new` for the duration, if `when`."""
    old = getattr(owner, name)
    if when:
        setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def raiser(error: BaseException) -> Callable[..., Any]:
    def raise_it(*args: Any, **kwargs: Any) -> Any:
        raise error

    return raise_it


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("will not be pickled")


def _refuse() -> None:
    raise KeyError("will not be loaded")


class Unloadable:
    def __reduce__(self) -> Any:
        return _refuse, ()
