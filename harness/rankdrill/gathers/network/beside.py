"""Waiting for one of several collectives that are under way at once.

Where a rank dies in the middle of several, gloo forgets one of them now and then: the others fail within milliseconds,
that one waits for its whole timeout (1 of 60 broadcasts of 3 MB beside three more, a rank killed, two busy loops on
two cores, torch 2.13). So the wait is cut into turns, and between them the others are asked.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["wait_beside"]

TURN_S = 0.05


def wait_beside(work: Any, others: Sequence[Any], until: float) -> None:
    """Wait for `work` until that time, or raise what it, or meanwhile one of `others`, failed with."""
    while (left := until - time.monotonic()) > TURN_S:
        if _is_over_within(TURN_S, work, left):
            work.wait()
            return
        for other in others:
            if other is not None and other.is_completed():
                other.wait()
    work.wait(datetime.timedelta(seconds=max(left, TURN_S)))


def _is_over_within(seconds: float, work: Any, left: float) -> bool:
    # Of a collective that is watched the ledger is to say that the rank waits on, and not that it gave up.
    wait_on = getattr(work, "wait_on", None)
    if wait_on is not None:
        return bool(wait_on(seconds, left))
    with contextlib.suppress(Exception):
        work.wait(datetime.timedelta(seconds=seconds))
    return bool(work.is_completed())
