"""Tensors that do not fit, brought by one line of a loop: whether it is their turn is told by what comes next."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

SIZES = {"weight": 6, "bias": 2, "scale": 3}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(3) as made:
        yield made


def in_the_order_of(names: Callable[[int], list[str]], epochs: int, late: int) -> None:
    if dist.get_rank() == late:
        time.sleep(0.05)
    for _ in range(epochs):
        for name in names(dist.get_rank()):
            dist.all_reduce(torch.ones(SIZES[name]))  # here


def turned(rank: int) -> list[str]:
    return list(reversed(SIZES)) if rank == 1 else list(SIZES)


def one_is_another(rank: int) -> list[str]:
    return ["weight", "weight", "bias" if rank == 1 else "weight", "weight", "weight"]


def the_last_is_another(rank: int) -> list[str]:
    return ["weight", "weight", "bias" if rank == 1 else "weight", "weight"]


@pytest.mark.parametrize(("late", "epochs"), [(late, epochs) for late in (0, 1) for epochs in (1, 3)])
def test_the_same_in_another_order_is_one_of_order(world: World, late: int, epochs: int) -> None:
    """Whoever comes last."""
    (finding,) = world.run(in_the_order_of, turned, epochs, late).findings
    assert finding.kind is FindingKind.CALL_ORDERING
    assert finding.culprits == (1,)
    assert " later, at " in str(finding)


@pytest.mark.parametrize("names", [one_is_another, the_last_is_another])
@pytest.mark.parametrize("late", [0, 1])
def test_what_all_rounds_bring_but_one_is_no_other_order(
    world: World, late: int, names: Callable[[int], list[str]]
) -> None:
    (finding,) = world.run(in_the_order_of, names, 1, late).findings
    assert finding.kind is FindingKind.SIZE
    assert finding.culprits == (1,)


def leaves_traces(place: str) -> None:
    for name in turned(dist.get_rank()):
        dist.all_reduce(torch.ones(SIZES[name]))
        with open(Path(place) / f"{dist.get_rank()}-{name}", "w") as file:
            file.write(str(os.getpid()))


def test_the_copy_that_looks_ahead_does_nothing(world: World, tmp_path: Path) -> None:
    """It ends where others would see what it does: so it does not get as far as to tell."""
    outcome = world.run(leaves_traces, str(tmp_path))
    assert outcome.findings[0].kind is FindingKind.SIZE
    assert list(tmp_path.iterdir()) == []
    assert sorted(outcome.victims) == [0, 2]


def computes_long_before_the_next(rank_of_odd: int) -> None:
    for name in turned(dist.get_rank()):
        dist.all_reduce(torch.ones(SIZES[name]))
        time.sleep(30)


def test_what_comes_late_is_not_waited_for(world: World) -> None:
    outcome = world.run(computes_long_before_the_next, 1)
    assert outcome.findings[0].kind in (FindingKind.SIZE, FindingKind.CALL_ORDERING)
    assert outcome.elapsed < 15
