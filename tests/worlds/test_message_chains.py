"""Chains in which each rank hands on what it takes: who leaves one early, and who goes round once too often."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import run

Body = Callable[[RankContext], None]


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(3) as world:
        yield world


def hands_on(rank: RankContext, rounds: int) -> None:
    for _ in range(rounds):
        row = torch.ones(4)
        if rank.index > 0:
            dist.recv(row, src=rank.index - 1)
        if rank.index < rank.world_size - 1:
            dist.send(row, dst=rank.index + 1)


def the_last_leaves_early(rank: RankContext) -> None:
    hands_on(rank, 3 if rank.index == 3 else 5)


def the_last_leaves_by_a_break(rank: RankContext) -> None:
    last = rank.world_size - 1
    for step in range(5):
        if rank.index == last and step == 3:
            break
        row = torch.ones(4)
        if rank.index > 0:
            dist.recv(row, src=rank.index - 1)
        if rank.index < last:
            dist.send(row, dst=rank.index + 1)


def the_first_goes_round_once_more(rank: RankContext) -> None:
    hands_on(rank, 6 if rank.index == 0 else 5)


def each_sends_its_own_first(rank: RankContext) -> None:
    """What goes round once does not say how often it is to go on."""
    if rank.index == 1:
        dist.send(torch.ones(4), dst=3)
    hands_on(rank, 2)


@pytest.mark.parametrize(
    ("body", "who"),
    [(the_last_leaves_early, 3), (the_last_leaves_by_a_break, 3), (the_first_goes_round_once_more, 0)],
)
def test_who_does_not_go_round_as_often_as_the_others(fresh: World, body: Body, who: int) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (who,))


def test_the_way_out_is_told(fresh: World) -> None:
    (found,) = run(fresh, the_last_leaves_by_a_break, deadline=30).findings
    assert "goes past it by `if rank.index == last and step == 3`" in str(found)


def test_what_is_sent_past_a_chain_is_none_of_it(fresh: World) -> None:
    (found,) = run(fresh, each_sends_its_own_first, deadline=30).findings
    assert found.kind is FindingKind.UNMATCHED
    assert found.culprits in ((1,), ())


def pipeline(rank: RankContext, rounds: int) -> None:
    last = rank.world_size - 1
    stage = PipelineStage(nn.Linear(4, 4), rank.index, rank.world_size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    for _ in range(rounds):
        if rank.index == 0:
            schedule.step(torch.ones(4, 4))
        elif rank.index == last:
            schedule.step(target=torch.ones(4, 4))
        else:
            schedule.step()


def the_last_stage_leaves_early(rank: RankContext) -> None:
    pipeline(rank, 2 if rank.index == rank.world_size - 1 else 3)


def the_first_stage_leaves_early(rank: RankContext) -> None:
    pipeline(rank, 2 if rank.index == 0 else 3)


@pytest.mark.parametrize(("body", "who"), [(the_last_stage_leaves_early, 2), (the_first_stage_leaves_early, 0)])
def test_a_stage_that_leaves_its_pipeline(three: World, body: Body, who: int) -> None:
    (found,) = run(three, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (who,))


def test_of_two_stages_nobody_can_say(two: World) -> None:
    (found,) = run(two, the_last_stage_leaves_early, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, ())


def waits_for_more_before_it_answers(rank: RankContext) -> None:
    """Two messages in a row are no habit of three."""
    row = torch.ones(3)
    if rank.index == 0:
        for step in range(4):
            dist.send(row, dst=1)
            if step:
                dist.recv(row, src=1)
    else:
        for step in range(4):
            dist.recv(row, src=0)
            if step > 1:
                dist.send(row, dst=0)


def test_how_many_are_to_come_in_a_row_no_row_before_has_told(two: World) -> None:
    (found,) = run(two, waits_for_more_before_it_answers, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, ())
