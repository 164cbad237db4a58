"""Two groups on a device, in different orders on different ranks: the host goes on, and the device never does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from tests.worlds.test_on_device import DEADLINE_S, SOON_S, begin, waits_for_the_device


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(3, init=False) as made:
        yield made


def two_groups() -> tuple[int, torch.Tensor, Any, Any]:
    rank, x = begin()
    return rank, x, dist.new_group(), dist.new_group()


def turned_round_once(who_waits: tuple[int, ...], computes_s: float = 0.0) -> None:
    rank, x, one, other = two_groups()
    for step in range(5):
        for group in (other, one) if (rank, step) == (1, 3) else (one, other):
            if (rank, step, group) == (1, 4, other):
                time.sleep(computes_s)
            dist.all_reduce(x, group=group)
    if rank in who_waits:
        waits_for_the_device()


@pytest.mark.parametrize(
    ("who_waits", "computes_s"),
    [
        pytest.param((0, 1, 2), 0.0, id="all wait for their device"),
        pytest.param((), 0.0, id="all return"),
        pytest.param((0, 2), 0.0, id="the culprit returns"),
        pytest.param((0,), 0.0, id="one waits"),
        pytest.param((0, 1, 2), 2.0, id="the culprit has calls to make yet"),
    ],
)
def test_who_turns_two_groups_round_is_told_and_nobody_has_to_wait(
    world: World, who_waits: tuple[int, ...], computes_s: float
) -> None:
    outcome = world.run(turned_round_once, who_waits, computes_s, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.DEADLOCK
    assert finding.culprits == (1,)
    assert "all_reduce #3 on '1'" in str(finding)
    assert "all_reduce #3 on '2'" in str(finding)
    assert outcome.elapsed < SOON_S


def in_pairs_in_two_orders() -> None:
    rank, x = begin()
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 2])]
    mine = {0: (pairs[0], pairs[2]), 1: (pairs[1], pairs[0]), 2: (pairs[2], pairs[1])}[rank]
    for group in mine:
        dist.all_reduce(x, group=group)
    waits_for_the_device()


def test_three_pairs_wait_in_a_circle(world: World) -> None:
    (finding,) = world.run(in_pairs_in_two_orders, deadline=DEADLINE_S).findings
    assert finding.kind is FindingKind.DEADLOCK
    assert finding.ranks == (0, 1, 2)
    assert finding.culprits == ()


def in_one_order() -> None:
    rank, x, one, other = two_groups()
    for _ in range(300):  # more than are kept
        dist.all_reduce(x, group=one)
        if rank != 1:
            time.sleep(0.0005)
        dist.all_reduce(x, group=other)


def side_by_side() -> None:
    """Neither waits for the other, on the device: each group has a queue of its own."""
    rank, x, one, other = two_groups()
    for _ in range(5):
        order = (other, one) if rank == 1 else (one, other)
        works = [dist.all_reduce(x.clone(), group=group, async_op=True) for group in order]
        for work in works:
            assert work is not None
            work.wait()


def one_is_only_of_some() -> None:
    rank, x = begin()
    pair = dist.new_group([0, 1])
    for _ in range(5):
        if rank < 2:
            dist.all_reduce(x, group=pair)
        dist.all_reduce(x)


def looks_at_another_order_for_a_while() -> None:
    """A rank that is late is none that turns them round."""
    rank, x, one, other = two_groups()
    for _ in range(3):
        dist.all_reduce(x, group=one)
        if rank == 2:
            time.sleep(0.2)
        dist.all_reduce(x, group=other)
    time.sleep(0.3)


@pytest.mark.parametrize("body", [in_one_order, side_by_side, one_is_only_of_some, looks_at_another_order_for_a_while])
def test_what_the_device_gets_past_is_right(world: World, body: Callable[[], None]) -> None:
    world.run(body, deadline=DEADLINE_S).unwrap()
