"""From a record alone: jobs with one mistake each, recorded as real jobs are, killed, explained and played again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from benchmarks.recorded import Again, played_again, recorded
from click.testing import CliRunner

from rankdrill.cli import main
from rankdrill.explain.recording import explain_recording
from rankdrill.replay import pytest_file, score_of_recording
from tests.catalogue.programs import catalogue
from tests.recording.jobs import await_that, explained, job
from tests.recording.test_record import steps_in

LEAST_ALIKE = 0.95
DEADLINE_S = 3.0
PLAYED_S = 20.0


def again(body: Callable[[int], None], ranks: int, directory: Path) -> Again:
    """What comes of what `body` has left."""
    with job(body, ranks, directory) as running:
        explained(running.directory, lambda found: bool(found.causes) and "in no call" not in str(found.places))
    return played_again(directory, PLAYED_S)


def in_two_orders(rank: int) -> None:
    losses, metrics = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
    for turn in range(4):
        for group in (metrics, losses) if (rank, turn) == (2, 3) else (losses, metrics):
            dist.all_reduce(torch.ones(1), group=group)


def lies_otherwise(rank: int) -> None:
    for turn in range(4):
        weights = torch.zeros(5, 4).t() if (rank, turn) == (1, 2) else torch.zeros(4, 5)
        dist.broadcast(weights, src=0)
    dist.barrier()


def tries_once_more(rank: int) -> None:
    """The others go on meanwhile, to a call like the one that was made once too often."""
    for turn in range(4):
        for _ in range(1 + ((rank, turn) == (2, 3))):
            dist.all_reduce(torch.ones(1))
        dist.broadcast(torch.ones(1), src=0)


def fails_alone(rank: int) -> None:
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        raise ValueError("no such sample")
    dist.all_reduce(torch.ones(1))


def all_fail_alike(rank: int) -> None:
    dist.all_reduce(torch.ones(1))
    raise ValueError("the batch cannot be divided")


def kills_itself(rank: int) -> None:
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        (in_two_orders, "deadlock: 2"),
        (lies_otherwise, "memory layout: 1"),
        (tries_once_more, "extra call: 2"),
        (fails_alone, "hang: 1"),
        (kills_itself, "died: 1"),
    ],
)
def test_the_same_comes_of_it(body: Callable[[int], None], verdict: str, tmp_path: Path) -> None:
    found = again(body, 3, tmp_path / "record")
    source = pytest_file(score_of_recording(tmp_path / "record"))
    assert ("os.kill(os.getpid(), 9)  # called os.kill with SIGKILL, at " in source) is (body is kills_itself)
    assert (found.there, found.here) == (verdict, verdict)
    assert found.same


def test_all_that_fail_alike_fail_together_again(tmp_path: Path) -> None:
    found = again(all_fail_alike, 3, tmp_path / "record")
    assert [told.partition(":")[0] for told in (found.there, found.here)] == ["together", "together"]
    assert found.same


def test_where_ranks_do_not_agree_is_the_end_and_both_sides_are_told(tmp_path: Path) -> None:
    """A backend let them go on: what came behind it is of no use to anybody."""
    with job(lies_otherwise, 3, tmp_path / "record") as running:
        running.wait()
    found = explain_recording(tmp_path / "record")
    odd, others = found.causes[0].finding.sides
    assert "float32[4,5] strides (1,4)" in odd.did
    assert "float32[4,5], contiguous" in others.did
    score = score_of_recording(tmp_path / "record")
    assert {len(part.calls) for part in score.parts} == {3}
    assert score.cut == ("what ranks did behind broadcast #2 on 'default', in which they do not agree, is left out",)


def test_a_job_that_nobody_brought_to_a_hang_has_nothing_to_come_again(tmp_path: Path) -> None:
    with job(sums_on_and_on, 2, tmp_path / "record") as running:
        await_that(lambda: steps_in(tmp_path / "record") > 3, "ranks record")
        running.kill()
    test = tmp_path / "test_it.py"
    done = CliRunner().invoke(main, ["replay", "--as-test", str(test), "--deadline", "3", str(tmp_path / "record")])
    assert "there: nobody known to be at fault" in done.output
    if done.exit_code:  # else both were killed at the same call
        assert done.exit_code == 3
        assert "cannot be told: what was left shows no cause" in done.output


def sums_on_and_on(rank: int) -> None:
    while True:
        dist.all_reduce(torch.ones(1))
        time.sleep(0.01)


def test_before_any_call_there_is_nothing_to_play(tmp_path: Path) -> None:
    with job(waits_for_ever, 2, tmp_path / "record") as running:
        explained(
            running.directory, lambda found: "had no process group" not in str(found.places) and found.places != ()
        )
        running.kill()
    done = CliRunner().invoke(main, ["replay", str(tmp_path / "record")])
    assert done.exit_code == 3, done.output
    assert "no rank has made a call that could be played" in done.output
    assert "here:" not in done.output


def waits_for_ever(rank: int) -> None:
    time.sleep(1000)


@pytest.mark.nightly
def test_the_same_comes_of_nearly_all() -> None:
    others, tried = {}, 0
    for program in catalogue("mistakes"):
        if not program.runs_here:
            continue
        with recorded(program, DEADLINE_S) as (record, _):
            if explain_recording(record).causes:
                tried += 1
                found = played_again(record, PLAYED_S)
                if not found.same:
                    others[program.name] = f"{found.there}, here {found.here}"
    assert len(others) <= (1 - LEAST_ALIKE) * tried, others
