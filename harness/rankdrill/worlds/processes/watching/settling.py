"""How long those that still run are left to, once contracts were found broken: what they come to may tell more."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rankdrill.diagnosis import doomed
from rankdrill.motion import seconds_kept_waiting, seconds_run, wants_processor
from rankdrill.worlds.processes.client import RankHandle
from rankdrill.worlds.processes.watching.positions import Positions

__all__ = ["SETTLE_LOOK_S", "Settling"]

SETTLE_S = 0.1  # for those that are on their way to where they wait
SETTLE_LOOK_S = 0.01
MOST_S = 2.0  # for those that have not come to a processor meanwhile, on a busy machine
STARVED_SHARE = 0.2  # of the time: who waited for a processor for longer, or had one for less and wants one


class Settling:
    """Begins with a broken run; asked again and again, it says when to end that."""

    def __init__(self, positions: Positions, running: Mapping[int, RankHandle]) -> None:
        self._positions = positions
        self._begun = time.monotonic()
        self._waiting: dict[int, int] = {}  # by rank the steps in which they do for ever, at the last look
        self._window(running, self._begun)

    def _window(self, running: Mapping[int, RankHandle], now: float) -> None:
        self._since, self._until = now, now + SETTLE_S
        pids = {rank: handle.pid or 0 for rank, handle in running.items()}
        self._had = {rank: (seconds_run(pid), seconds_kept_waiting(pid)) for rank, pid in pids.items()}

    def end(self, running: Mapping[int, RankHandle], now: float) -> float:
        """On the monotonic clock: `now`, where all that still run wait for ever, or had their time."""
        if self._all_wait_for_ever(running):
            return now
        if now >= self._until and self._starved(running, now):
            self._window(running, now)
        return min(self._until, self._begun + MOST_S)

    def _all_wait_for_ever(self, running: Mapping[int, RankHandle]) -> bool:
        """Whether they do at two looks: one reads a rank's ledger after another's, which may have gone on meanwhile."""
        before = self._waiting
        waiting = doomed(self._positions.now(running))
        self._waiting = {rank: wait.record.index for rank, wait in waiting.items()}
        if not self._waiting.keys() >= running.keys() or self._waiting != before:
            return False
        return not any(wants_processor(handle.pid) for handle in running.values() if handle.pid is not None)

    def _starved(self, running: Mapping[int, RankHandle], now: float) -> bool:
        """Whether one of them would have gone on, had it come to a processor."""
        pids = {rank: handle.pid for rank, handle in running.items() if handle.pid is not None}
        return any(self._kept_waiting(rank, pid, now - self._since) for rank, pid in pids.items())

    def _kept_waiting(self, rank: int, pid: int, seconds: float) -> bool:
        had, had_waited = self._had[rank]
        if seconds_kept_waiting(pid) - had_waited > STARVED_SHARE * seconds:
            return True
        # How long a thread has waited is told once it has come to a processor.
        return seconds_run(pid) - had < STARVED_SHARE * seconds and wants_processor(pid)
