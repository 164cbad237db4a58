"""Jobs that somebody ended, by Ctrl-C or by a signal that they handle: what is told is why they hung, if they did."""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.diagnosis import Confidence, FindingKind
from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording
from rankdrill.recording.interrupted import interrupted_here
from tests.recording.jobs import Job, explained, job

FILE = Path(__file__)


def line_of(mark: str) -> int:
    """The line that ends in a comment of that word."""
    lines = FILE.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


class Leaves:
    """Handles a signal by leaving."""

    def __call__(self, *_: Any) -> None:
        sys.exit(1)

    def method(self, *_: Any) -> None:
        sys.exit(0)

    @staticmethod
    def raising(*_: Any) -> None:
        raise RuntimeError("time is up")


def leave(code: int, *_: Any) -> None:
    sys.exit(code)


HANDLERS: dict[str, Any] = {
    "nobody": signal.default_int_handler,
    "a method": Leaves().method,
    "an object": Leaves(),
    "a part": functools.partial(leave, 143),
    "an error": Leaves.raising,
}


USUAL = {"nobody", "a method"}
ALL = [pytest.param(name, marks=[] if name in USUAL else [pytest.mark.nightly]) for name in HANDLERS]


def computes_for_ever(rank: int, handler: str) -> None:
    signal.signal(signal.SIGINT, HANDLERS[handler])
    for step in range(20):
        if (rank, step) == (2, 9):
            while True:
                time.sleep(0.01)  # stuck
        dist.all_reduce(torch.ones(4))


def goes_on(rank: int, handler: str) -> None:
    signal.signal(signal.SIGINT, HANDLERS[handler])
    while True:
        time.sleep(0.002 + 0.02 * (rank == 1))
        dist.all_reduce(torch.ones(4))


def interrupt(running: Job) -> None:
    """As a launcher does that is sent Ctrl-C itself."""
    for rank in running.ranks:
        assert rank.pid is not None
        os.kill(rank.pid, signal.SIGINT)
    time.sleep(0.5)  # who is in C cannot handle it, and is killed


def is_stuck(found: Explanation) -> bool:
    return any(cause.finding.kind is FindingKind.STUCK_RANK for cause in found.causes)


@pytest.mark.parametrize("handler", ALL)
def test_who_was_stuck_has_not_left_a_call_out(handler: str, tmp_path: Path) -> None:
    with job(computes_for_ever, 3, tmp_path / "record", handler) as running:
        explained(running.directory, is_stuck)
        interrupt(running)
    found = explain_recording(tmp_path / "record")
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert cause.confidence is Confidence.POSSIBLE
    (site,) = cause.finding.sides[0].sites
    assert site is not None
    assert (site.file, site.line) == (str(FILE), line_of("stuck"))
    assert "sent a signal" in str(cause.finding)


@pytest.mark.parametrize("handler", ALL)
def test_nobody_is_at_fault_in_a_job_that_was_well(handler: str, tmp_path: Path) -> None:
    with job(goes_on, 3, tmp_path / "record", handler) as running:
        explained(running.directory, lambda found: all("all_reduce" in place.doing for place in found.places))
        interrupt(running)
    assert explain_recording(tmp_path / "record").causes == ()


def goes_alone(rank: int) -> None:
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGINT)
    dist.all_reduce(torch.ones(4))
    time.sleep(100)


def test_a_signal_to_one_alone_is_its_end(tmp_path: Path) -> None:
    """The others live on for long."""
    with job(goes_alone, 3, tmp_path / "record") as running:
        found = explained(running.directory, lambda found: bool(found.causes))
    (cause,) = found.causes
    assert (cause.finding.kind, cause.finding.culprits) == (FindingKind.LOST_RANK, (1,))
    assert "was sent a signal" in str(cause.finding)


def called_by(handler: Any, *given: Any) -> object:
    return handler(*given)


def test_who_calls_a_handler_is_not_interrupted() -> None:
    found: list[object] = []

    def handler(*_: Any) -> None:
        found.append(interrupted_here())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        handler()
        called_by(handler, signal.SIGUSR1, None)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert found[:2] == [None, None]
        assert found[2] is not None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_outside_of_a_handler_nobody_is_interrupted() -> None:
    assert interrupted_here() is None
