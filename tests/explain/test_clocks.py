"""Clocks of several machines brought together by what their ranks did in common."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import numpy
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.diagnosis import FindingKind
from rankdrill.explain.recording import explain_recording
from rankdrill.explain.recording.clocks import Clock, shifts_of
from rankdrill.explain.recording.evidence import evidence_of
from rankdrill.explain.recording.reading import read_directory
from rankdrill.explain.recording.runs import told_apart
from rankdrill.ledger import format as f
from tests.recording.jobs import explained, job

SECOND = 10**9
LONGEST = SECOND // 100  # that a call takes
DTYPE = [("sequence", "<i8"), ("op", "S32"), ("digest", "<u8"), ("begin", "<u8"), ("end", "<u8")]


def calls(begins: list[int], ends: list[int], op: bytes = b"all_reduce") -> dict[str, numpy.ndarray]:
    rows = [(at, op, 7, begin, end) for at, (begin, end) in enumerate(zip(begins, ends, strict=True))]
    return {"default": numpy.array(rows, DTYPE)}


@given(
    apart=st.integers(-(10**6) * SECOND, 10**6 * SECOND),
    lies=st.integers(-30 * SECOND, 30 * SECOND),
    late=st.lists(st.integers(0, LONGEST), min_size=1, max_size=20),
)
def test_what_one_moment_was_is_known_to_within_a_call(apart: int, lies: int, late: list[int]) -> None:
    """Rank 1 is on another machine, and comes `late` to each call; its time of day `lies`."""
    start = 2 * 10**6 * SECOND
    here = [start + at * SECOND for at in range(len(late))]
    ends = [begin + LONGEST for begin in here]
    there = calls([begin + each + apart for begin, each in zip(here, late, strict=True)], [end + apart for end in ends])
    clocks = {0: Clock("a", 0), 1: Clock("b", lies - apart)}
    shifts = shifts_of(clocks, {0: calls(here, ends), 1: there})
    assert shifts[0] == 0
    assert abs(shifts[1] + apart) <= LONGEST


def test_calls_that_are_no_meeting_say_nothing() -> None:
    clocks = {0: Clock("a", 0), 1: Clock("b", 5)}
    here, there = calls([100], [200], b"broadcast"), calls([900], [950], b"broadcast")
    assert shifts_of(clocks, {0: here, 1: there}) == {0: 0, 1: 5}


def test_ranks_of_one_machine_have_one_clock() -> None:
    clocks = {0: Clock("a", 0), 1: Clock("a", 99)}
    assert shifts_of(clocks, {0: calls([1], [2]), 1: calls([1], [2])}) == {0: 0, 1: 0}


def leave_one_out(rank: int) -> None:
    for round_ in range(6):
        dist.all_reduce(torch.ones(8))
        if (rank, round_) != (2, 4):
            dist.all_reduce(torch.ones(8))  # left out
    dist.barrier()


def move_to_another_machine(directory: Path, rank: int, apart: int) -> None:
    """What rank `rank` left, as if its machine had been started at another time."""
    (name,) = [one.name for one in read_directory(directory) if one.rank == rank]
    log, ledger = directory / f"{name}.log", directory / f"{name}.ledger"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[0] |= {"boot": "another", "host": "far", "monotonic_ns": lines[0]["monotonic_ns"] + apart}
    log.write_text("".join(json.dumps({**line, "at_ns": line["at_ns"] + apart}) + "\n" for line in lines))
    raw = bytearray(ledger.read_bytes())
    (total,) = struct.unpack_from("<Q", raw, f.TOTAL_OFFSET)
    places = [f.HEADER_BYTES + index * f.RECORD_BYTES + at for index in range(total) for at in (8, 16)]
    for place in (f.HEART_OFFSET, *places):
        (moment,) = struct.unpack_from("<Q", raw, place)
        struct.pack_into("<Q", raw, place, moment + apart if moment else 0)
    ledger.write_bytes(raw)


@pytest.mark.parametrize("later", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_job_of_two_machines_is_explained_as_of_one(later: bool, tmp_path: Path) -> None:
    # Of one started later the clock is still not below zero, on a machine that is up for a few minutes, too.
    apart = -min(1000 * SECOND, time.monotonic_ns() // 2) if later else 5_000_000 * SECOND
    directory = tmp_path / "record"
    with job(leave_one_out, 4, directory) as running:
        explained(directory, lambda found: any(cause.finding.culprits for cause in found.causes))
        running.kill()
    before = explain_recording(directory)
    for rank in (1, 2):
        move_to_another_machine(directory, rank, apart)
    after = explain_recording(directory)
    (one,), (other,) = before.causes, after.causes
    assert one.finding == other.finding
    assert (other.finding.kind, other.finding.culprits) == (FindingKind.MISSING, (2,))
    evidence = evidence_of(told_apart(read_directory(directory))[0])
    firsts = [next(r.begin_ns for r in each.view if r.step.op == "all_reduce") for each in evidence.ranks.values()]
    assert max(firsts) - min(firsts) < 60 * SECOND


def test_where_the_log_does_not_say_what_time_it_was_the_ledger_does(tmp_path: Path) -> None:
    with job(leave_one_out, 4, tmp_path) as running:
        explained(tmp_path, lambda found: any(cause.finding.culprits for cause in found.causes))
        running.kill()
    told = {one.name: one.clock_ns for one in read_directory(tmp_path)}
    for log in tmp_path.glob("*.log"):
        first, *rest = log.read_text().splitlines()
        about = {name: value for name, value in json.loads(first).items() if name != "realtime_ns"}
        log.write_text("\n".join([json.dumps(about), *rest, ""]))
    for one in read_directory(tmp_path):
        assert abs(one.clock_ns - told[one.name]) < 60 * SECOND
