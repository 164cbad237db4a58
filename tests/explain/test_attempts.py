"""Attempts of one job in one directory: torchrun's store outlives an attempt, and so does what is kept in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.diagnosis import Confidence, FindingKind
from rankdrill.explain.recording import explain_recording
from rankdrill.explain.recording.reading import read_directory
from tests.explain.test_recording import copied, in_little
from tests.recording.jobs import explained, job

WORLD = 3


def fail(rank: int) -> None:
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        raise SystemError("once")
    dist.all_reduce(torch.ones(4))


def hang(rank: int) -> None:
    for step in range(4):
        if (rank, step) != (2, 2):
            dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(4), 0)


@pytest.fixture(scope="module")
def two_attempts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torchrun leaves of a job that fails at first and then hangs: both attempts got one name from its store."""
    directory = tmp_path_factory.mktemp("anew") / "record"
    with job(fail, WORLD, directory, first=in_little) as first:
        first.wait()
    shutil.rmtree(directory.with_name("record.job"))
    before = {one.name for one in read_directory(directory)}
    with job(hang, WORLD, directory, first=in_little):
        explained(directory, lambda found: any(cause.finding.kind is FindingKind.MISSING for cause in found.causes))
    for log in directory.glob("*.log"):
        _tell(log, restarts=0 if log.stem in before else 1)
    return directory


def _tell(log: Path, restarts: int) -> None:
    """Have it be written under torchrun."""
    lines = list(_lines(log, restarts))
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _lines(log: Path, restarts: int) -> Iterator[dict[str, Any]]:
    for line in map(json.loads, log.read_text().splitlines()):
        if "launcher" in line:
            line["launcher"] |= {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        if "run" in line:
            line["run"] = "the same"
        yield line


def test_attempts_of_one_name_are_runs_of_their_own(two_attempts: Path) -> None:
    found = explain_recording(two_attempts)
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.MISSING, (2,))
    assert [told.rpartition(": ")[2] for told in found.runs] == ["explained here", "--run 1"]
    (cause,) = explain_recording(two_attempts, run=1).causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))


def test_an_attempt_that_a_rank_never_came_to_is_not_filled_from_the_one_before(
    two_attempts: Path, tmp_path: Path
) -> None:
    directory = copied(two_attempts, tmp_path / "record")
    newest = max((one for one in read_directory(directory) if one.rank == 1), key=lambda one: one.start_ns)
    for file in directory.glob(f"{newest.name}.*"):
        file.unlink()
    found = explain_recording(directory)
    assert "nothing was recorded by rank 1" in found.gaps
    assert all(cause.finding.kind is not FindingKind.LOST_RANK for cause in found.causes)


@pytest.mark.parametrize("rank", range(WORLD))
def test_a_ledger_without_its_log_is_of_the_run_that_lacks_its_rank(
    rank: int, two_attempts: Path, tmp_path: Path
) -> None:
    directory = copied(two_attempts, tmp_path / "record")
    newest = max((one for one in read_directory(directory) if one.rank == rank), key=lambda one: one.start_ns)
    (directory / f"{newest.name}.log").unlink()
    found = explain_recording(directory)
    assert len(found.runs) == 2
    assert found.world_size == WORLD
    assert not any("nothing was recorded" in gap for gap in found.gaps)
    assert any("has no log" in gap for gap in found.gaps)
    assert all(cause.finding.culprits in ((), (2,)) for cause in found.causes)


def test_of_a_rank_without_a_record_that_another_lost_it_is_told(two_attempts: Path, tmp_path: Path) -> None:
    directory = copied(two_attempts, tmp_path / "record")
    eldest = min((one for one in read_directory(directory) if one.rank == 1), key=lambda one: one.start_ns)
    for file in directory.glob(f"{eldest.name}.*"):
        file.unlink()
    (cause,) = explain_recording(directory, run=1).causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))
    assert cause.confidence is Confidence.POSSIBLE
