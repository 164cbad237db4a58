"""A body that handles signals for itself, as jobs do that are told to save before they are ended."""

from __future__ import annotations

import signal
import time

import pytest

from rankdrill import World

SOON_S = 1.0


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGTERM"])
def test_where_it_is_stuck_is_shown_whatever_signal_it_handles(two: World, name: str) -> None:
    def body() -> None:
        signal.signal(getattr(signal, name), lambda *_: None)
        time.sleep(1000)  # here

    outcome = two.run(body, deadline=SOON_S)
    assert all(f"line {body.__code__.co_firstlineno + 2} in body" in rank.stack for rank in outcome.ranks)
