"""Messages whose peer is one rank or another by turns, forward and backward: nobody has named a wrong one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import run

MICRO_BATCHES = 4
WARM_UPS = (3, 1, 2, 1)


class Stage:
    """Of a pipeline with one forward and one backward by turns, after a warm-up of its own length."""

    def __init__(self, rank: RankContext, warm_up: int) -> None:
        self.up = rank.index - 1 if rank.index else None
        self.down = rank.index + 1 if rank.index + 1 < rank.world_size else None
        turns = ["forward"] * warm_up + ["backward", "forward"] * (MICRO_BATCHES - warm_up)
        self.turns = [*turns, *["backward"] * warm_up]

    def step(self, way: str, data: torch.Tensor) -> None:
        source, target = (self.up, self.down) if way == "forward" else (self.down, self.up)
        if source is not None:
            dist.recv(data, src=source)
        if target is not None:
            dist.send(data, dst=target)

    def forward(self, data: torch.Tensor) -> None:
        if self.up is not None:
            dist.recv(data, src=self.up)
        if self.down is not None:
            dist.send(data, dst=self.down)

    def backward(self, data: torch.Tensor) -> None:
        if self.down is not None:
            dist.recv(data, src=self.down)
        if self.up is not None:
            dist.send(data, dst=self.up)


def by_a_schedule(rank: RankContext) -> None:
    stage, data = Stage(rank, WARM_UPS[rank.index]), torch.ones(2)
    for way in stage.turns:
        stage.step(way, data)


def by_loops(rank: RankContext) -> None:
    warm_up, data = WARM_UPS[rank.index], torch.ones(2)
    stage = Stage(rank, warm_up)
    for _ in range(warm_up):
        stage.forward(data)
    for _ in range(MICRO_BATCHES - warm_up):
        stage.backward(data)
        stage.forward(data)
    for _ in range(warm_up):
        stage.backward(data)


@pytest.mark.parametrize("body", [by_a_schedule, by_loops])
def test_stages_that_warm_up_longer_than_those_before_wait_for_each_other(
    fresh: World, body: Callable[[RankContext], None]
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, ())
    assert found.ranks == (1, 2)


def the_lower_one_sends_first(rank: RankContext) -> None:
    mine, theirs = torch.ones(2), torch.zeros(2)

    def exchange(peer: int) -> None:
        if rank.index < peer:
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(mine, dst=peer)

    for distance in (1, 2, 3):
        exchange((rank.index + distance) % rank.world_size)


def test_pairs_that_are_none_wait_for_each_other_in_a_ring(fresh: World) -> None:
    (found,) = run(fresh, the_lower_one_sends_first, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.DEADLOCK, ())
    assert found.ranks == (0, 1, 2, 3)


def counts_its_tags_from_one(rank: RankContext) -> None:
    data = torch.ones(2)
    if rank.index == 0:
        for source in range(1, rank.world_size):
            for part in range(2):
                dist.recv(data, src=source, tag=100 * source + part)
    else:
        for part in range(2):
            dist.send(data, dst=0, tag=100 * rank.index + part + (rank.index == 2))


def test_tags_that_are_a_number_times_the_rank(fresh: World) -> None:
    (found,) = run(fresh, counts_its_tags_from_one, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (2,))
