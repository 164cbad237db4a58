"""Calls in several threads of a rank at the same time."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
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


class ThreadsFailed(Exception):  # noqa: N818 (it says what happened)
    """Not every one of several threads came to its end."""


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """What `actions` return, each in a thread of its own; all begin together.

    Raises ThreadsFailed as soon as one of them raises, and when they have not all ended after `PATIENCE_S` seconds:
    what other ranks wait for will not come, and only this rank can say why.
    """
    results: list[Any] = [None] * len(actions)
    start = threading.Barrier(len(actions))
    ended: queue.SimpleQueue[tuple[int, BaseException | None]] = queue.SimpleQueue()

    def run(number: int, action: Callable[[], Any]) -> None:
        try:
            start.wait(PATIENCE_S)
            results[number] = action()
        except BaseException as error:
            ended.put((number, error))
        else:
            ended.put((number, None))

    threads = [threading.Thread(target=run, args=one, name=str(one[0])) for one in enumerate(actions)]
    # Another order on each rank, if that matters to anything.
    for thread in threads[dist.get_rank() :] + threads[: dist.get_rank()]:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    with frequent_switches():
        for _ in threads:
            try:
                number, error = ended.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                raise ThreadsFailed(f"not over after {PATIENCE_S} s:\n{_stacks(threads)}") from None
            if error is not None:
                raise ThreadsFailed(f"thread {number} raised {error!r}") from error
    return results


def _stacks(threads: Sequence[threading.Thread]) -> str:
    """Where those of `threads` are that have not ended."""
    frames = sys._current_frames()
    found = [(thread.name, frames.get(thread.ident or 0)) for thread in threads]
    return "\n".join(f"thread {name}:\n{''.join(traceback.format_stack(at))}" for name, at in found if at is not None)
