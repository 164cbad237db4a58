"""How long each rank had a processor since it last took a step: who computes is told from who only seems to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankdrill.motion import seconds_run
from rankdrill.worlds.processes.client import RankHandle
from rankdrill.worlds.processes.ledgers import Ledgers
from rankdrill.worlds.rank_outcome import ProcessorTime

__all__ = ["ProcessorTimes"]


@dataclass(frozen=True, slots=True)
class _Mark:
    """A process when a look first found it after `steps` steps."""

    steps: int
    ran: float
    at: float


class ProcessorTimes:
    """Follows the ranks through one run, look by look: a step is seen at the first look after it."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._marks: dict[int, _Mark] = {}

    def look(self, ranks: Iterable[RankHandle]) -> None:
        """Take note of those of `ranks` that have gone on."""
        for handle in ranks:
            steps, mark = self._ledgers.total(handle.rank), self._marks.get(handle.rank)
            if handle.pid is not None and (mark is None or mark.steps != steps):
                self._marks[handle.rank] = _Mark(steps, seconds_run(handle.pid), time.monotonic())

    def since(self, pids: Mapping[int, int]) -> dict[int, ProcessorTime]:
        """What each of `pids`, by rank, had since the last step that a look has seen."""
        now = time.monotonic()
        return {
            rank: ProcessorTime(
                seconds_run(pid) - mark.ran, now - mark.at, began=mark.steps == self._ledgers.start(rank)
            )
            for rank, pid in pids.items()
            if (mark := self._marks.get(rank)) is not None
        }
