"""Ranks that do different things in the same place: who differs from most is named, with both calls."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from rankdrill import World


def wrong_root() -> None:
    dist.broadcast(torch.ones(1), src=1 if dist.get_rank() == 2 else 0)
    dist.barrier()


def another_collective() -> None:
    if dist.get_rank() == 2:
        dist.barrier()
    else:
        dist.broadcast(torch.ones(1), src=0)
        dist.barrier()


@pytest.mark.parametrize(("body", "told"), [(wrong_root, "root=1"), (another_collective, "collective.barrier")])
def test_the_one_that_differs_is_the_culprit(four: World, body: object, told: str) -> None:
    outcome = four.run(body, deadline=3)  # type: ignore[arg-type]
    assert not outcome.ok
    assert outcome.culprits == (2,)
    line = outcome.describe(2)
    assert told in line
    assert "ranks 0, 1, 3 in collective.broadcast #0" in line


def test_of_two_both_are_told(two: World) -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(1), src=1)
        else:
            dist.barrier()

    outcome = two.run(body, deadline=2)
    assert set(outcome.culprits) <= {0, 1}
    line = outcome.describe(outcome.culprits[0])
    assert "rank 0" in line
    assert "rank 1" in line
