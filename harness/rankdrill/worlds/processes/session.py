"""Ends what a dead template's ranks had started: all of these are in its session."""

from __future__ import annotations

import contextlib
import os
import signal

__all__ = ["kill_session"]


def kill_session(leader: int) -> None:
    """Kill every process of the session that `leader` began; not yet reaped, its number is still its own."""
    import psutil  # needed only when a template was killed

    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # ended meanwhile, or not ours
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
