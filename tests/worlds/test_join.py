"""Uneven data within `Join`: a call that it does not make for ranks which have joined is told, and no rank blamed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

Body = Callable[[RankContext], None]


def train(batches: int, *, averages: bool = False) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 6))
    with Join([model]):
        for _ in range(batches):
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
            if averages:
                dist.all_reduce(loss.detach())  # beside


def one_has_more(rank: RankContext) -> None:
    train(3 + (rank.index == 2), averages=True)


def one_has_less(rank: RankContext) -> None:
    train(3 - (rank.index == 2), averages=True)


def half_have_less(rank: RankContext) -> None:
    train(3 - rank.index // 2, averages=True)


def with_a_sharded_optimizer_beside(rank: RankContext) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # which scripts functions, and warns of that

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 6))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model]):
        for _ in range(3 + (rank.index == 1)):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()  # beside
            optimizer.zero_grad()


@pytest.mark.parametrize("body", [one_has_more, one_has_less, half_have_less, with_a_sharded_optimizer_beside])
def test_a_call_beside_is_told_and_nobody_blamed(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=60).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, ())
    assert marks(found)[0] == {"beside"}
    assert " within Join, which does not make it for who has joined, at " in found.lines[0]


def test_uneven_data_by_itself_is_what_it_is_for(fresh: World) -> None:
    assert run(fresh, lambda rank: train(3 + rank.index), deadline=60).ok
