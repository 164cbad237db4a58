"""Stamps, once a second, that a process lives: so that of one that was killed it is known when."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["BEAT_S", "Heart"]

BEAT_S = 1.0


class Heart:
    """Calls `beat` from a thread of its own until it is stopped, or the process ends. It needs the GIL for that."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._stopped = threading.Event()

    def start(self) -> None:
        self._beat()
        threading.Thread(target=self._live, name="rankdrill-heart", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _live(self) -> None:
        while not self._stopped.wait(BEAT_S):
            self._beat()
