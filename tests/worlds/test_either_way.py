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


def to_the_right(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    up, down = (dist.get_rank() + 1) % dist.get_world_size(), (dist.get_rank() - 1) % dist.get_world_size()
    work = dist.isend(mine, dst=up)
    dist.recv(theirs, src=down)
    assert work is not None
    work.wait()


def to_the_left(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    up, down = (dist.get_rank() + 1) % dist.get_world_size(), (dist.get_rank() - 1) % dist.get_world_size()
    work = dist.isend(mine, dst=down)
    dist.recv(theirs, src=up)
    assert work is not None
    work.wait()


def goes_the_other_way_at_last(rank: RankContext) -> None:
    for turn in range(3):
        shift = to_the_left if (rank.index, turn) == (2, 2) else to_the_right
        shift(torch.ones(2), torch.zeros(2))
    dist.barrier()


def goes_the_other_way(rank: RankContext) -> None:
    if rank.index == 2:
        to_the_left(torch.ones(2), torch.zeros(2))
    else:
        to_the_right(torch.ones(2), torch.zeros(2))
    dist.barrier()


@pytest.mark.parametrize("body", [goes_the_other_way_at_last, goes_the_other_way])
def test_who_goes_the_other_way_has_named_a_wrong_rank(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (2,))


def takes_its_tags_for_products(rank: RankContext) -> None:
    """All others count on from 100."""
    data = torch.ones(2)
    if rank.index == 0:
        for source in (1, 2):
            dist.recv(data, src=source, tag=100 * source)
    elif rank.index < 3:
        dist.send(data, dst=0, tag=99 + rank.index)


def test_tags_that_may_count_on_are_no_products(fresh: World) -> None:
    (found,) = run(fresh, takes_its_tags_for_products, deadline=30).findings
    assert found.culprits != (2,)
