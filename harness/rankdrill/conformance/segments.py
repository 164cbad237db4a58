"""Segments of shared memory that ranks have made, and that are still there."""

from __future__ import annotations

from pathlib import Path

from rankdrill.conformance.leftovers import is_planted
from rankdrill.faults.content import LEFT_OVER
from rankdrill.step import Kind
from rankdrill.worlds import Outcome

__all__ = ["plant_segments", "remove_segments", "segments_left"]

_SEGMENTS = Path("/dev/shm")


def segments_left(outcome: Outcome) -> tuple[str, ...]:
    """Those that the ranks' ledgers say were created and that are still there; what a strike put there is removed."""
    left = []
    for path in _made(outcome):
        if is_planted(path):
            path.unlink()
        elif path.exists():
            left.append(str(path))
    return tuple(left)


def plant_segments(outcome: Outcome) -> list[str]:
    """Make them, as if a run had crashed: their names, where none of them is there."""
    planted = [path for path in _made(outcome) if not path.exists()]
    for path in planted:
        path.write_bytes(LEFT_OVER)
    return [path.name for path in planted]


def remove_segments(outcome: Outcome) -> None:
    """Remove them, so that nobody else meets them."""
    for path in _made(outcome):
        path.unlink(missing_ok=True)


def _made(outcome: Outcome) -> list[Path]:
    names = {
        Path(record.step.target).name
        for rank in outcome.ranks
        for record in rank.ledger
        if record.step.kind is Kind.SHM and record.step.op == "create"
    }
    return [_SEGMENTS / name for name in sorted(names)]
