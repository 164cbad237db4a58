"""What a call finds in its process and has to leave as it was.

What it holds for good, a group or a page that it made once, it has after its first call; what is set, no call changes.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.boundary.torch_seam import group_timeout
from rankdrill.conformance.leftovers import Belongings

__all__ = ["Surroundings"]


@dataclass
class Surroundings:
    """What this process has and has set, looked at as it was `settled` with all that is held for good."""

    settings: dict[str, Any]
    belongings: Belongings | None = None
    threads: int = 0

    @classmethod
    def now(cls) -> Surroundings:
        """Look at what is set."""
        return cls(dict(_settings()))

    def settle(self) -> None:
        """Look at what is held."""
        self.belongings, self.threads = Belongings.now(shared_memory=True), threading.active_count()

    def changes(self) -> tuple[str, ...]:
        """What is here now and was not then, one line each."""
        now = dict(_settings())
        changed = [
            f"{name} is {now[name]!r}, and was {was!r}" for name, was in self.settings.items() if now[name] != was
        ]
        left = Belongings.now(shared_memory=True).left_since(self.belongings) if self.belongings is not None else ()
        threads = threading.active_count() - self.threads
        started = (f"{threads} threads that were not there",) if threads > 0 else ()
        return (*left, *started, *changed)


def _settings() -> Iterator[tuple[str, Any]]:
    default = dist.group.WORLD
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    yield "the environment", sorted(environment.items())
    yield "the working directory", os.getcwd()
    yield "the default process group", id(default)
    yield "the timeout of the default group", group_timeout(default)
    yield "torch's default dtype", str(torch.get_default_dtype())
    yield "torch's default device", str(torch.get_default_device())
    yield "whether gradients are on", torch.is_grad_enabled()
    yield "the number of torch's threads", torch.get_num_threads()
    yield "the recursion limit", sys.getrecursionlimit()
    yield "the directory for temporary files", tempfile.gettempdir()
    yield "the filters of warnings", len(warnings.filters)
