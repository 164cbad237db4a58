"""Stages of torch's own pipelines that do not fit: the odd one is told, and where it cannot be no innocent one is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.torch_can import Can, needs

DEADLINE_S = 60.0
STAGES, MICROBATCHES = 3, 4
SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


@pytest.fixture(autouse=True, scope="module")
def _pipelines() -> None:
    needs(Can.PIPELINE)


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(STAGES) as world:
        yield world


@pytest.fixture(scope="module")
def unwatched() -> Iterator[World]:
    with World(STAGES, contracts=False) as world:
        yield world


def take_step(schedule: Any, me: int, whole: torch.Tensor) -> None:
    if me == 0:
        schedule.step(whole)
    elif me == STAGES - 1:
        schedule.step(target=whole)
    else:
        schedule.step()


def train(schedule: str, batches: list[int], leaves: int) -> str:
    me = dist.get_rank()
    stage = PipelineStage(nn.Linear(4, 4), me, STAGES, torch.device("cpu"))
    runs = SCHEDULES[schedule](stage, batches[me], loss_fn=nn.functional.mse_loss)
    whole = torch.ones(2 * batches[me], 4)
    for step in range(2):
        take_step(runs, me, whole)
        if (me, step) == (leaves, 0):
            return "early"
    return "done"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_that_fit_train(three: World, schedule: str) -> None:
    outcome = three.run(train, schedule, [MICROBATCHES] * STAGES, -1, deadline=DEADLINE_S)
    assert outcome.unwrap() == ["done"] * STAGES
    assert outcome.findings == ()


def train_by_turns(odd: int) -> str:
    """Two stages on each rank."""
    me = dist.get_rank()
    stages: list[Any] = [
        PipelineStage(nn.Linear(4, 4), me + STAGES * turn, 2 * STAGES, torch.device("cpu")) for turn in range(2)
    ]
    batches = 2 * STAGES if me == odd else STAGES
    runs = ScheduleInterleaved1F1B(stages, batches, loss_fn=nn.functional.mse_loss)
    whole = torch.ones(2 * batches, 4)
    take_step(runs, me, whole)
    return "done"


def train_twice() -> str:
    for batches in (2, 4):
        train("GPipe", [batches] * STAGES, -1)
    return "done"


def odd_one(more: int, odd: int) -> list[int]:
    return [MICROBATCHES + more * (stage == odd) for stage in range(STAGES)]


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("odd", range(STAGES))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stage_of_other_microbatches_is_told_as_it_begins(three: World, schedule: str, odd: int, more: int) -> None:
    outcome = three.run(train, schedule, odd_one(more, odd), -1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.SIZE, (odd,))
    assert finding.sides[0].did == (
        "enters PipelineScheduleSingle.step #0 on 'default' "
        f"with {MICROBATCHES + more} microbatches for {STAGES} stages"
    )


def test_so_is_one_of_several_that_have_two_stages_each(three: World) -> None:
    outcome = three.run(train_by_turns, 1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.SIZE, (1,))
    assert "PipelineScheduleMulti.step" in finding.sides[0].did


def test_two_pipelines_one_after_the_other_may_differ(three: World) -> None:
    outcome = three.run(train_twice, deadline=DEADLINE_S)
    assert outcome.unwrap() == ["done"] * STAGES
    assert outcome.findings == ()


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("odd", range(STAGES))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_where_contracts_are_off_it_is_among_those_told_and_no_other_is_accused(
    unwatched: World, schedule: str, odd: int, more: int
) -> None:
    outcome = unwatched.run(train, schedule, odd_one(more, odd), -1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind in (FindingKind.DEADLOCK, FindingKind.UNMATCHED)
    assert finding.culprits in ((), (odd,))
    assert odd in finding.ranks
    assert "by PipelineScheduleSingle.step" in str(finding)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stage_that_leaves_is_told_by_those_that_wait_for_it(three: World, schedule: str) -> None:
    outcome = three.run(train, schedule, [MICROBATCHES] * STAGES, 1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (1,))
    assert "goes past it by `if (me, step) == (leaves, 0)`" in finding.lines[0]


def takes_the_stage_of_another() -> None:
    """The last is off by one, and the first waits for ever."""
    rank = dist.get_rank()
    index = min(rank, STAGES - 2)
    stage = PipelineStage(nn.Linear(4, 4), index, STAGES, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    if index == 0:
        schedule.step(torch.ones(MICROBATCHES * 2, 4))
    else:
        schedule.step()


def test_a_rank_that_takes_the_stage_of_another_is_told_as_it_begins(three: World) -> None:
    (finding,) = three.run(takes_the_stage_of_another, deadline=DEADLINE_S).findings
    assert (finding.kind, finding.culprits) == (FindingKind.SIZE, (STAGES - 1,))
    assert "and takes stage 1, which is rank 1's" in finding.lines[0]
