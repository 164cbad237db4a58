"""Ranks that have ended, made by hand: what a controller would have collected of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rankdrill.diagnosis import Wait
from rankdrill.ledger import LedgerReader, LedgerView, LedgerWriter, State
from rankdrill.step import Kind, Step
from rankdrill.worlds import Death, RankOutcome, Status

__all__ = ["BARRIER", "OPEN", "barrier", "died", "ledger", "raised", "returned", "stuck", "waits"]

OPEN = Step(Kind.FILE, "open", "/x")


def barrier(sequence: int, group: str = "default", op: str = "barrier", fingerprint: str = "") -> Step:
    return Step(Kind.COLLECTIVE, op, group, fingerprint, sequence=sequence)


BARRIER = barrier(0)


def ledger(*steps: Step, last: State = State.ENDED) -> LedgerView:
    """The records of `steps`, all ended but the last one, which is in the state `last`."""
    with TemporaryDirectory(prefix="ledger-") as directory:
        path = Path(directory) / "ledger"
        with LedgerWriter(path, rank=0, world_size=1) as writer:
            for step in steps:
                writer.mark(writer.begin(step), last if step is steps[-1] else State.ENDED)
        reader = LedgerReader(path)
        view = reader.view()
        reader.close()
    return view


def returned(rank: int, value: Any = None, **more: Any) -> RankOutcome:
    return RankOutcome(rank, Status.RETURNED, value=value, **more)


def raised(rank: int, error: BaseException, at_ns: int = 1, **more: Any) -> RankOutcome:
    return RankOutcome(rank, Status.RAISED, exception=error, at_ns=at_ns, **more)


def died(rank: int, signal: int = 9, at_ns: int = 1, **more: Any) -> RankOutcome:
    return RankOutcome(rank, Status.DIED, death=Death(None, signal, at_ns), at_ns=at_ns, **more)


def stuck(rank: int, **more: Any) -> RankOutcome:
    return RankOutcome(rank, Status.STUCK, **more)


def waits(rank: int, *missing: int, step: Step = BARRIER, **more: Any) -> RankOutcome:
    """Rank `rank`, ended while it waited in `step` for the ranks `missing`."""
    view = ledger(step, last=State.WAITING)
    return stuck(rank, ledger=view, wait=Wait(rank, view.records[-1], missing), **more)
