"""What a call finds in its process and has to leave as it was.

What it holds for good, a group or a page that it made once, it has after its first call; what is set, no call changes.
"""

from __future__ import annotations

import builtins
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from rankdrill.boundary.torch_seam import group_timeout, groups
from rankdrill.conformance.kit.on_rank.socket_names import names_left, note_names
from rankdrill.conformance.leftovers import Belongings, randomness

__all__ = ["Surroundings"]

_IMPORTED = ("the filters of warnings", "the level of the root logger", "the handlers of the root logger")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


@dataclass
class Surroundings:
    """What this process has and has set, looked at as it was `settled` with all that is held for good."""

    settings: dict[str, Any]
    store: Store
    group: Any
    randomness: tuple[int, int, int]
    belongings: Belongings | None = None
    threads: int = 0
    groups: int = 0
    modules: int = 0

    @classmethod
    def now(cls, store: Store, group: Any) -> Surroundings:
        """Look at what is set, also on the `store` and the `group` that calls are given."""
        note_names()
        return cls(dict(_settings(store, group)), store, group, randomness(), modules=len(sys.modules))

    def settle(self) -> None:
        """Look at what is held, and at what modules set that have been imported since."""
        if len(sys.modules) > self.modules:
            self.settings.update(
                (name, value) for name, value in _settings(self.store, self.group) if name in _IMPORTED
            )
        # To draw from a global generator is no call's business, the first's no more than another's.
        self.belongings = replace(Belongings.now(shared_memory=True), randomness=self.randomness)
        self.threads, self.groups = threading.active_count(), len(groups())

    def changes(self) -> tuple[str, ...]:
        """What is here now and was not then, one line each."""
        now = dict(_settings(self.store, self.group))
        changed = [
            f"{name} is {now[name]!r}, and was {was!r}" for name, was in self.settings.items() if now[name] != was
        ]
        left = Belongings.now(shared_memory=True).left_since(self.belongings) if self.belongings is not None else ()
        threads = threading.active_count() - self.threads
        started = (f"{threads} threads that were not there",) if threads > 0 else ()
        more = len(groups()) - self.groups
        made = (f"{more} process groups that were not there",) if more > 0 else ()
        names = (f"the name of a socket that is closed: {name}" for name in names_left())
        return (*left, *started, *made, *names, *changed)


def _umask() -> int:
    umask = os.umask(0o077)  # to ask is to set it
    os.umask(umask)
    return umask


def _settings(store: Store, group: Any) -> Iterator[tuple[str, Any]]:
    default = dist.group.WORLD
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    yield "the environment", sorted(environment.items())
    yield "the working directory", os.getcwd()
    yield "the umask", oct(_umask())
    yield "the default process group", id(default)
    yield "the timeout of the default group", group_timeout(default)
    yield "the timeout of the group that calls", group_timeout(group)
    yield "the timeout of the store", str(getattr(store, "timeout", ""))
    yield "torch's default dtype", str(torch.get_default_dtype())
    yield "torch's default device", str(torch.get_default_device())
    yield "whether gradients are on", torch.is_grad_enabled()
    yield "the number of torch's threads", torch.get_num_threads()
    yield "the recursion limit", sys.getrecursionlimit()
    yield "the directory for temporary files", tempfile.gettempdir()
    yield "the filters of warnings", len(warnings.filters)
    yield "the function print", builtins.print
    yield "the level of the root logger", logging.root.level
    yield "the handlers of the root logger", len(logging.root.handlers)
    yield (
        "what is done at signals",
        [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)],
    )
    yield "the default timeout of sockets", socket.getdefaulttimeout()
    yield "whether garbage is collected", gc.isenabled()
