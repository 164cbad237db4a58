"""What is asked for in time is had, and what comes too late is left to itself."""

from __future__ import annotations

import threading
import time

import pytest

from rankdrill.gathers.network.overdue import within


def test_what_comes_in_time_is_returned_or_raised() -> None:
    assert within(60, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)


def test_what_comes_too_late_is_not_waited_for() -> None:
    over = threading.Event()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"longer than 0\.1 s"):
        within(0.1, lambda: over.wait(60))
    assert time.monotonic() - began < 30
    over.set()
