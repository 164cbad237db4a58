"""Stamps, once a second, that a process lives, and where: so that this is known of one that was killed, or is stuck."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import FrameType

from rankdrill.boundary.callsites import MOST_FRAMES, owner_of
from rankdrill.whose import Whose

__all__ = ["BEAT_S", "Heart"]

BEAT_S = 1.0
BEATS_WATCHED = 10  # after which it is made sure again that somebody watches


class Heart:
    """Calls `beat` from a thread of its own until it is stopped, or the process ends. It needs the GIL for that.

    `beat` is told line, file and function of the user's that the main thread is at. Now and then `be_watched` sees to
    it that somebody watches: a launcher may have ended the watchdog with the step of a job that started it.
    """

    def __init__(self, beat: Callable[[int, str, str], None], be_watched: Callable[[], object] | None = None) -> None:
        self._beat = beat
        self._be_watched = be_watched
        self._seeing = threading.Lock()
        self._main = threading.main_thread().ident
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._live, name="rankdrill-heart", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _live(self) -> None:
        for number in count(1):
            self._beat(*self._place())
            if self._stopped.wait(BEAT_S):
                return
            if number % BEATS_WATCHED == 0:
                self._see_to_it()

    def _see_to_it(self) -> None:
        """In a thread of its own: the heart beats on, however long it takes to start a watchdog."""
        be_watched = self._be_watched
        if be_watched is None or self._seeing.locked():
            return

        def see() -> None:
            with self._seeing, suppress(Exception):
                be_watched()

        with suppress(RuntimeError):  # the process is at its end
            threading.Thread(target=see, name="rankdrill-watched", daemon=True).start()

    def _place(self) -> tuple[int, str, str]:
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            if owner_of(frame.f_code) is Whose.USER:
                return frame.f_lineno or 0, frame.f_code.co_filename, frame.f_code.co_name
            frame = frame.f_back
        return 0, "", ""
