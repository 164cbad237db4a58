"""A rank in this very process: its boundary installed, its faults armed, its ledger readable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch.distributed as dist

from rankdrill.boundary import Boundary, install
from rankdrill.faults import Plan, arm
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter
from tests.torch_can import end_group

__all__ = ["Here", "rank_here", "world_of_one"]


@dataclass
class Here:
    """What a rank in this process has written down so far."""

    boundary: Boundary
    path: Path
    plan: Plan

    @property
    def view(self) -> LedgerView:
        with self.boundary.closed():
            reader = LedgerReader(self.path)
            view = reader.view()
            reader.close()
        return view

    @property
    def steps(self) -> list[str]:
        """``file.open``, in order."""
        return [record.step.name for record in self.view]

    @property
    def fired(self) -> tuple[int, ...]:
        with self.boundary.closed():
            reader = LedgerReader(self.path)
            fired = reader.fired(len(self.plan.faults))
            reader.close()
        return fired


@contextmanager
def rank_here(plan: str = "", *, rank: int = 0, ignored: tuple[str, ...] = ()) -> Iterator[Here]:
    """Record steps of this process, struck by `plan`, for the duration."""
    parsed = Plan.parse(plan)
    with TemporaryDirectory(prefix="rank-here-") as directory:
        path = Path(directory) / "rank.ledger"
        with LedgerWriter(path, rank=rank, world_size=4) as writer:
            boundary = Boundary(writer)
            undo = install(boundary, ignored=[directory, *ignored])
            try:
                with boundary.recording(arm(parsed, rank, boundary)):
                    yield Here(boundary, path, parsed)
            finally:
                undo()


@contextmanager
def world_of_one(directory: Path) -> Iterator[Here]:
    """This process as the only rank of a world, whose store is a file in `directory`."""
    with rank_here(ignored=(str(directory),)) as rank:
        store = dist.FileStore(str(directory / "store"), 1)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(seconds=30))
        yield rank
        end_group()
