"""Signals that end a launched script from outside, as a terminal, a scheduler or a container sends them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "raised_as_interrupts"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Somebody has sent a signal that is to end the run."""

    def __init__(self, signum: int) -> None:
        self.signal = signal.Signals(signum)
        super().__init__(self.signal.name)


@contextmanager
def raised_as_interrupts() -> Iterator[None]:
    """Within, the first of SIGINT, SIGTERM and SIGHUP raises `Interrupted`.

    Those that follow are ignored until the end of the block: what the first one began, which is to tell where ranks
    were and to end them, takes seconds at most and would leave processes behind if it were broken off. What the
    process ignores, as SIGHUP under ``nohup``, stays ignored. Elsewhere than in the main thread nothing is done:
    Python handles signals there only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def handle(signum: int, _: FrameType | None) -> None:
        nonlocal came
        if came:
            return
        came = True
        raise Interrupted(signum)

    handlers = {each: signal.getsignal(each) for each in _ENDING}
    ours = [each for each, handler in handlers.items() if handler not in (signal.SIG_IGN, None)]
    for each in ours:
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, handlers[each])
