"""Where each rank of a run is, as its ledger and the plan tell."""

from __future__ import annotations

import time
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

from rankdrill.diagnosis import Position, Progress
from rankdrill.diagnosis.on_device import held_on_device
from rankdrill.ledger import Record
from rankdrill.worlds.planned import BENDING, STOP, bends_calls, ending_strikes, struck_by
from rankdrill.worlds.processes.ledgers import Ledgers
from rankdrill.worlds.processes.watching.locks import holders

if TYPE_CHECKING:
    from rankdrill.faults import Plan

__all__ = ["Positions"]

_NEVER_ISSUED = STOP | {"skip"}


class Positions:
    """The positions of `size` ranks, followed through one run under `plan`."""

    def __init__(self, ledgers: Ledgers, plan: Plan | None, size: int) -> None:
        self._ledgers = ledgers
        self._plan = plan
        self._size = size
        self._progress: dict[int, Progress] = {}
        self._bends = plan is not None and bends_calls(plan)
        self._deadly = ending_strikes() if plan is not None else frozenset()

    def now(self, running: Container[int], *, stuck: bool = False) -> list[Position]:
        """Where every rank is; those that are not `running` have ended. With `stuck`, the others are known to be."""
        found = [self._of(rank, ended=rank not in running, stuck=stuck) for rank in range(self._size)]
        # Under a plan what ranks do beside a call that never ends is what is tested.
        if any(position.on_device for position in found) and (stuck or not self.planned):
            found = held_on_device(found, time.monotonic_ns(), stuck=stuck)
        return self._with_holders(found) if any(position.locking for position in found) else found

    def _with_holders(self, found: list[Position]) -> list[Position]:
        """Of those that wait for a file's lock, whom for; where that is none of the ranks nobody can say what comes."""
        rank_of = {pid: rank for rank in range(self._size) if (pid := self._process_of(rank)) is not None}
        held_by = {rank_of[pid]: rank_of[by] for pid, by in holders().items() if pid in rank_of and by in rank_of}
        return [
            replace(position, at=position.locking, held_by=held_by[rank])
            if position.locking and held_by.get(rank, rank) != rank
            else position
            for rank, position in enumerate(found)
        ]

    def _process_of(self, rank: int) -> int | None:
        reader = self._ledgers.of(rank)
        return reader.pid if reader is not None else None

    @property
    def planned(self) -> bool:
        """Whether the run has a plan."""
        return self._plan is not None

    def bent(self) -> frozenset[int]:
        """The ranks that gave a collective what does not go with the others', where nobody is to sleep in one."""
        ranks = range(self._size) if self._bends else ()
        return frozenset(rank for rank in ranks if self._struck(rank, BENDING))

    def stopped(self, rank: int) -> bool:
        """Whether the plan stopped `rank`: it will do nothing more, and need not."""
        return self._struck(rank, STOP)

    def ended_by_plan(self, rank: int) -> bool:
        """Whether the plan stopped `rank` or ended its process."""
        return self._struck(rank, self._deadly)

    def _struck(self, rank: int, names: Container[str]) -> bool:
        if self._plan is None:
            return False
        return struck_by(self._plan, self._ledgers.fired(rank, len(self._plan.faults)), names)

    def _of(self, rank: int, *, ended: bool, stuck: bool) -> Position:
        ended = ended or self.stopped(rank)
        reader = self._ledgers.of(rank)
        if reader is None:
            return Position(ended)
        progress = self._progress.setdefault(
            rank, Progress(self._entered, self._size, self._ledgers.start(rank), reader.pid)
        )
        progress.take(reader.view(progress.next, groups_since=0))
        return progress.position(ended=ended, stuck=stuck)

    def _entered(self, record: Record) -> bool:
        # A collective that was skipped, or before which the rank was stopped or ended, was never issued.
        # A damaged ledger may name a fault that no plan has.
        if self._plan is None or record.fault is None or record.fault >= len(self._plan.faults):
            return True
        fault = self._plan.faults[record.fault]
        ended = fault.where.when == "before" and fault.what.name in self._deadly
        return not ended and fault.what.name not in _NEVER_ISSUED
