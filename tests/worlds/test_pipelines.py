"""Stages of torch's own pipelines that do not fit: one line makes all messages, and no innocent stage is accused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 60.0
STAGES, MICROBATCHES = 3, 4
SCHEDULES = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(STAGES) as world:
        yield world


def train(schedule: str, batches: list[int], leaves: int) -> str:
    me = dist.get_rank()
    stage = PipelineStage(nn.Linear(4, 4), me, STAGES, torch.device("cpu"))
    runs = SCHEDULES[schedule](stage, batches[me], loss_fn=nn.functional.mse_loss)
    whole = torch.ones(2 * batches[me], 4)
    for step in range(2):
        if me == 0:
            runs.step(whole)
        elif me == STAGES - 1:
            runs.step(target=whole)
        else:
            runs.step()
        if (me, step) == (leaves, 0):
            return "early"
    return "done"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_that_fit_train(three: World, schedule: str) -> None:
    outcome = three.run(train, schedule, [MICROBATCHES] * STAGES, -1, deadline=DEADLINE_S)
    assert outcome.unwrap() == ["done"] * STAGES
    assert outcome.findings == ()


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("odd", range(STAGES))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stage_of_other_microbatches_is_among_those_told_and_nobody_is_accused(
    three: World, schedule: str, odd: int, more: int
) -> None:
    batches = [MICROBATCHES + more * (stage == odd) for stage in range(STAGES)]
    outcome = three.run(train, schedule, batches, -1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind in (FindingKind.DEADLOCK, FindingKind.UNMATCHED)
    assert finding.culprits == ()
    assert odd in finding.ranks
    assert "by PipelineScheduleSingle.step" in str(finding)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stage_that_leaves_is_told_by_those_that_wait_for_it(three: World, schedule: str) -> None:
    outcome = three.run(train, schedule, [MICROBATCHES] * STAGES, 1, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.UNMATCHED, (1,))
    assert "goes past it by `if (me, step) == (leaves, 0)`" in finding.lines[0]
