"""In a rank: it prints its stacks into a file of its own when its watchdog asks, whoever holds the GIL."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankdrill.boundary.patch import Patch, apply

__all__ = ["ASKED_BY", "STACKS", "answer_in"]

STACKS = ".stacks"
ASKED_BY = signal.SIGURG
"""Nothing can end by it: who does not listen to it does not notice. Schedulers and scripts use SIGUSR1 and SIGUSR2."""


def answer_in(path: Path) -> Callable[[], None]:
    """Have `faulthandler` print into `path`, from now on until what this returns is called.

    Nothing is done where a script listens to the signal already, or the file cannot be made. A script that begins to
    listen later has the signal for itself: without the file nobody asks any more.
    """
    if signal.getsignal(ASKED_BY) not in (signal.SIG_DFL, None):
        return lambda: None
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return lambda: None
    faulthandler.register(ASKED_BY, file=fd, all_threads=True)

    def yield_to_script(listen: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(listen)
        def listened(signalnum: Any, handler: Any) -> Any:
            if signalnum == ASKED_BY:
                faulthandler.unregister(ASKED_BY)  # which would put back what handled it before
                with suppress(OSError):
                    path.unlink()
            return listen(signalnum, handler)

        return listened

    put_back = apply([Patch(signal, "signal", yield_to_script)])

    def stop() -> None:
        put_back()
        faulthandler.unregister(ASKED_BY)
        os.close(fd)

    return stop
