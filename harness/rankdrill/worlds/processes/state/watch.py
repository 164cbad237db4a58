"""What can only be noticed: a rank in which it changed is not used for another test."""

from __future__ import annotations

import builtins
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from rankdrill.worlds.processes.state.groups import Groups
from rankdrill.worlds.versions import Version

__all__ = ["Watch"]

_OWNERS: tuple[Any, ...] = (
    builtins,
    os,
    random,
    time,
    threading,
    torch,
    torch.Tensor,
    torch.nn.Module,
    torch.nn.functional,
    torch.optim.Optimizer,
    torch.utils.data.DataLoader,
    dist,
    distributed_c10d,
    dist.ProcessGroup,
)
"""Where tests patch by hand, and what every later test would meet."""

THREADS_END_S = 0.1  # for threads to end that are about to
_FDS = "/proc/self/fd/"
_NOT_LEFT = ("/dev/", "/proc/", "/memfd:")
_EVERYWHERE = ("0.0.0.0", "::")
_TORCH = str(Path(torch.__file__).parent)
# Files that torch and Python open once, when first needed, and keep.
_KEPT = (".so", ".py", ".pyc", ".zip")


class Watch:
    """What was there at one moment; `left()` says what has come or changed since, in words.

    With `code` also which modules there are, and what tests patch by hand.
    """

    def __init__(self, *, code: bool) -> None:
        # Looking at code touches every object of it: in a fresh fork, a page each that has to be copied.
        self._modules = _Modules() if code else None
        self._attributes = [_Attributes(owner) for owner in _OWNERS] if code else []
        self._threads = frozenset(threading.enumerate())
        self._open = _count_descriptors()
        self._descriptors = _descriptors()
        self._groups = Groups()

    def left(self) -> Iterator[str]:
        """Each thing that a fresh rank would not have."""
        if self._modules is not None and self._modules.changed():
            yield "changed sys.modules"
        for attributes in self._attributes:
            yield from attributes.changed()
        yield from self._groups.left()
        yield from self._left_threads()
        if _has_children():
            yield "left a child process"
        if _count_descriptors() != self._open or not self._open:
            yield from self._opened(_descriptors())

    def held(self, kept: Collection[int]) -> Iterator[str]:
        """Each thing that does harm only while somebody holds it who has not `kept` it for this body alone."""
        return self._groups.held(kept)

    def _left_threads(self) -> Iterator[str]:
        until = time.monotonic() + THREADS_END_S
        for thread in threading.enumerate():
            # Those of C++ that have called Python, as autograd's do for a device, are nobody's to end. Nor is a daemon
            # of a library's own, which a fresh rank would have as soon as it did what this one did: tqdm's monitor.
            known = thread in self._threads or isinstance(thread, threading._DummyThread)
            if not known and not _keeps_house(thread):
                thread.join(max(until - time.monotonic(), 0))
                if thread.is_alive():
                    yield f"left thread {thread.name!r}"

    def _opened(self, now: dict[int, str]) -> Iterator[str]:
        for fd, target in now.items():
            new = self._descriptors.get(fd) != target
            # Pipes and most sockets may be gloo's, which opens them when it needs them.
            if new and target.startswith("socket:") and (port := _awaits_anybody(fd)):
                yield f"left port {port} open"
            if new and target.startswith("/") and not target.startswith(_NOT_LEFT) and not target.endswith(_KEPT):
                yield f"left {target} open"


def _keeps_house(thread: threading.Thread) -> bool:
    """Whether it is a daemon whose class, and so what it runs, is that of an installed package."""
    made_by = getattr(sys.modules.get(type(thread).__module__), "__file__", None) or ""
    return thread.daemon and f"{os.sep}site-packages{os.sep}" in made_by


class _Modules:
    """The modules there are, in the order in which they came."""

    def __init__(self) -> None:
        self._before = tuple(sys.modules.values())
        self._version = Version(sys.modules)

    def changed(self) -> bool:
        """Whether one of them is another, or gone; that more have come is normal."""
        return self._version.touched() and tuple(sys.modules.values())[: len(self._before)] != self._before


class _Attributes:
    """What a module or class has, in the order in which it came."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._before = tuple(vars(owner).values())
        self._version = Version(vars(owner))

    def changed(self) -> Iterator[str]:
        """What is another object than it was; numbers and the like change in normal use."""
        if not self._version.touched():
            return
        owner, before = self._owner, self._before
        inherited = set().union(*map(vars, owner.__mro__[1:])) if isinstance(owner, type) else set()
        for place, (name, value) in enumerate(vars(owner).items()):
            # What a module has got since hides nothing; what a class has may hide what it inherits.
            same = value is before[place] if place < len(before) else name not in inherited
            if not same and callable(value) and not name.startswith("__") and not _by_torch(value):
                yield f"changed {getattr(owner, '__name__', owner)}.{name}"


def _by_torch(value: Any) -> bool:
    """Whether torch's own code took the place of what was there, as its compiler does when it is first imported."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _descriptors() -> dict[int, str]:
    """Each open descriptor and what it is of; the one that the listing itself uses is closed again by then."""
    found = {}
    for fd in os.listdir(_FDS):
        with suppress(OSError):
            found[int(fd)] = os.readlink(_FDS + fd)
    return found


def _awaits_anybody(fd: int) -> int:
    """The port at which the socket waits for connections to whichever address; 0 if it does not.

    So does the server of a `TCPStore`, which a failed test may hold by its traceback: the next one would not get that
    port. gloo waits at one address each time, with ports that nobody has chosen.
    """
    with suppress(OSError), socket.socket(fileno=os.dup(fd)) as looked_at:
        if looked_at.family in (socket.AF_INET, socket.AF_INET6) and looked_at.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        ):
            address, port, *_ = looked_at.getsockname()
            return port if address in _EVERYWHERE else 0
    return 0


def _count_descriptors() -> int:
    """How many descriptors are open; 0 before Linux 6.2, which does not say."""
    return os.stat(_FDS).st_size


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
