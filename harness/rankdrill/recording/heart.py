"""Stamps, once a second, that a process lives, and where: so that this is known of one that was killed, or is stuck."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

from rankdrill.boundary.callsites import MOST_FRAMES, owner_of
from rankdrill.whose import Whose

__all__ = ["BEAT_S", "Heart"]

BEAT_S = 1.0


class Heart:
    """Calls `beat` from a thread of its own until it is stopped, or the process ends. It needs the GIL for that.

    `beat` is told line, file and function of the user's that the main thread is at.
    """

    def __init__(self, beat: Callable[[int, str, str], None]) -> None:
        self._beat = beat
        self._main = threading.main_thread().ident
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._live, name="rankdrill-heart", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _live(self) -> None:
        while True:
            self._beat(*self._place())
            if self._stopped.wait(BEAT_S):
                return

    def _place(self) -> tuple[int, str, str]:
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            if owner_of(frame.f_code) is Whose.USER:
                return frame.f_lineno or 0, frame.f_code.co_filename, frame.f_code.co_name
            frame = frame.f_back
        return 0, "", ""
