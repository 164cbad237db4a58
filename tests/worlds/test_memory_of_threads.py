"""Memory that a call of one thread works on, and that another thread of the rank uses before it is waited for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 90.0
EARLY_S = 45.0
ODD = 1
SIZE = 1 << 10


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(2) as made:
        yield made


def filled_by_a_loader() -> None:
    """Which is told to go on too early."""
    staging = torch.zeros(SIZE)
    asked, filled = queue.Queue[int](), queue.Queue[int]()

    def load() -> None:
        while (step := asked.get()) >= 0:
            staging.fill_(float(step))  # odd
            filled.put(step)

    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    asked.put(0)
    for step in range(1, 4):
        filled.get()
        work = dist.all_reduce(staging if dist.get_rank() == ODD else staging.clone(), async_op=True)
        asked.put(step)
        if dist.get_rank() == ODD:
            filled.get()
            filled.put(step)
        work.wait()
    asked.put(-1)
    loader.join()


def read_in_a_pool() -> None:
    result = torch.ones(SIZE)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torch.zeros, 1).result()
        work = dist.all_reduce(result, async_op=True)
        if dist.get_rank() == ODD:
            pool.submit(lambda: result.sum().item()).result()  # odd
        work.wait()


@pytest.mark.parametrize("body", [filled_by_a_loader, read_in_a_pool], ids=lambda body: body.__name__)
def test_memory_that_another_thread_uses_too_early_is_told(world: World, body: Callable[[], None]) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < EARLY_S
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.INPUT_HAZARD, (ODD,))
    assert [site.function for site in finding.sides[0].sites if site] == [
        "load" if body is filled_by_a_loader else "<lambda>"
    ]


def two_buffers_in_turn() -> None:
    staging = torch.zeros(2, SIZE)
    asked, filled = queue.Queue[int](), queue.Queue[int]()

    def load() -> None:
        while (step := asked.get()) >= 0:
            staging[step % 2].fill_(float(step))
            filled.put(step)

    loader = threading.Thread(target=load)
    loader.start()
    asked.put(0)
    for step in range(1, 6):
        filled.get()
        work = dist.all_reduce(staging[(step - 1) % 2], async_op=True)
        asked.put(step)
        work.wait()
    asked.put(-1)
    loader.join()


def waited_for_and_used_there() -> None:
    """By a thread that is given the handle."""
    works = queue.Queue[Any]()
    sums: list[float] = []

    def use() -> None:
        while (item := works.get()) is not None:
            work, tensor = item
            work.wait()
            sums.append(tensor.sum().item())

    user = threading.Thread(target=use)
    user.start()
    for _ in range(20):
        tensor = torch.ones(SIZE)
        works.put((dist.all_reduce(tensor, async_op=True), tensor))
    works.put(None)
    user.join()
    assert sums == [2.0 * SIZE] * 20


def calls_of_its_own() -> None:
    """On a group of its own, and it computes with other memory all the time."""
    group = dist.new_group()
    seen: list[float] = []

    def train() -> None:
        weights = torch.ones(SIZE, requires_grad=True)
        for _ in range(10):
            tensor = torch.ones(SIZE)
            work = dist.all_reduce(tensor, group=group, async_op=True)
            torch.autograd.backward((weights * 2).sum())
            work.wait()
            seen.append(tensor[0].item())

    other = threading.Thread(target=train)
    other.start()
    for _ in range(10):
        tensor = torch.ones(SIZE)
        work = dist.all_reduce(tensor, async_op=True)
        torch.ones(SIZE).mul_(2)
        work.wait()
        assert tensor[0].item() == 2.0
    other.join()
    assert seen == [2.0] * 10


def under_a_default_device() -> None:
    """Modes of its own are as they were."""
    devices: list[str] = []

    def make() -> None:
        with torch.device("meta"):
            devices.append(torch.ones(1).device.type)
        devices.append(torch.ones(1).device.type)

    work = dist.all_reduce(torch.ones(SIZE), async_op=True)
    other = threading.Thread(target=make)
    other.start()
    other.join()
    work.wait()
    assert devices == ["meta", "cpu"]


@pytest.mark.parametrize(
    "body",
    [two_buffers_in_turn, waited_for_and_used_there, calls_of_its_own, under_a_default_device],
    ids=lambda body: body.__name__,
)
def test_threads_that_keep_to_their_own_memory_are_left_alone(world: World, body: Callable[[], None]) -> None:
    outcome = world.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
