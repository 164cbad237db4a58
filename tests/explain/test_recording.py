"""Jobs that were recorded, and killed, are explained: who is at fault, where, and how sure that is."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from rankdrill.diagnosis import FindingKind
from rankdrill.explain import Confidence
from rankdrill.explain.recording import explain_recording
from tests.recording.jobs import explained, job

FILE = __file__
WORLD = 4


def line_of(mark: str) -> int:
    """The line that ends in a comment of that word."""
    lines = Path(FILE).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def leave_one_out(rank: int) -> None:
    for round_ in range(4):
        if (rank, round_) != (2, 1):
            dist.all_reduce(torch.ones(8))  # left out
        dist.all_reduce(torch.ones(8))
    dist.barrier()


def test_a_rank_that_leaves_a_call_out_is_named_with_its_line(tmp_path: Path) -> None:
    with job(leave_one_out, WORLD, tmp_path / "record") as ranks:
        explained(ranks.directory, lambda found: bool(found.causes))
    found = explain_recording(tmp_path / "record")
    (cause,) = found.causes
    assert cause.finding.kind is FindingKind.MISSING
    assert cause.finding.culprits == (2,)
    assert f"{FILE}:{line_of('left out')}" in str(cause.finding.sides[0])
    assert cause.confidence is Confidence.CERTAIN
    assert found.victims == (0, 1, 3)
    assert found.gaps == ()
