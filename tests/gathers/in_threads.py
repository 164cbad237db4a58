"""Calls in several threads of a rank at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

# What a thread waits for another one of its own process.
PATIENCE_S = 120.0


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """What `actions` return, or raised, each in a thread of its own; all begin together."""
    results: list[Any] = [None] * len(actions)
    start = threading.Barrier(len(actions))

    def run(number: int, action: Callable[[], Any]) -> None:
        try:
            start.wait(PATIENCE_S)
            results[number] = action()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=one, name=str(one[0])) for one in enumerate(actions)]
    # Another order on each rank, if that matters to anything.
    for thread in threads[dist.get_rank() :] + threads[: dist.get_rank()]:
        thread.start()
    with frequent_switches():
        for thread in threads:
            thread.join(PATIENCE_S)
    return results
