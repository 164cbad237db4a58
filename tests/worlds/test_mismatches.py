"""Ranks that do different things in the same place, in a world that does not compare contracts: found in ledgers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World


@pytest.fixture(scope="module")
def unwatched() -> Iterator[World]:
    with World(4, contracts=False) as world:
        yield world


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
def test_the_one_that_differs_is_the_culprit(unwatched: World, body: object, told: str) -> None:
    outcome = unwatched.run(body, deadline=3)  # type: ignore[arg-type]
    assert not outcome.ok
    assert outcome.findings == ()
    assert outcome.culprits == (2,)
    line = outcome.describe(2)
    assert told in line
    assert "ranks 0, 1, 3 in collective.broadcast #0" in line


def test_of_two_both_are_told() -> None:
    def body() -> None:
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(1), src=1)
        else:
            dist.barrier()

    with World(2, contracts=False) as two:
        outcome = two.run(body, deadline=2)
    assert set(outcome.culprits) <= {0, 1}
    line = outcome.describe(outcome.culprits[0])
    assert "rank 0" in line
    assert "rank 1" in line
