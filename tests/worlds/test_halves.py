"""A barrier that all but one pass before, and that one behind what it does alone: where it leaves its own half out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

Body = Callable[[RankContext], None]


@contextmanager
def first_alone() -> Iterator[None]:
    first = dist.get_rank() == 0
    if not first:
        dist.barrier()
    yield
    if first:
        dist.barrier()  # half


def fails_in_the_block(rank: RankContext) -> None:
    try:
        with first_alone():
            if rank.index == 0:
                raise FileNotFoundError("vocabulary")
    except FileNotFoundError:
        pass
    dist.all_reduce(torch.ones(2))


def load(rank: RankContext, cached: bool) -> None:
    if rank.index != 0:
        dist.barrier()
    words = 3 if rank.index else 4
    if words == 4 and cached:
        return
    if rank.index == 0:
        dist.barrier()  # half


def returns_before_its_half(rank: RankContext) -> None:
    load(rank, cached=rank.index == 0)
    dist.all_reduce(torch.ones(2))


@pytest.mark.parametrize(
    ("body", "way"),
    [
        (fails_in_the_block, "by an error at `yield`, at "),
        (returns_before_its_half, "by `if words == 4 and cached`, at "),
    ],
)
def test_who_leaves_its_half_out_is_told_with_its_own_line(fresh: World, body: Body, way: str) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (0,))
    assert marks(found)[0] == {"half"}
    assert way in found.lines[0]


def another_goes_past_its_half(rank: RankContext) -> None:
    if rank.index and rank.index != 2:
        dist.barrier()  # theirs
    if rank.index == 0:
        dist.barrier()
    dist.all_reduce(torch.ones(2))


def test_one_of_the_others_is_told_with_theirs(fresh: World) -> None:
    (found,) = run(fresh, another_goes_past_its_half, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (2,))


def test_whoever_fails_nowhere_meets_the_others(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        for _ in range(3):
            with first_alone():
                torch.ones(2)
        load(rank, cached=False)

    assert run(fresh, body).ok


class Saver:
    """Writes on the first rank, in a thread, and lets the others go on once that is there."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits
        self.thread: Thread | None = None

    def _write(self) -> None:
        time.sleep(0.05)
        dist.barrier()  # written

    def save(self) -> None:
        if dist.get_rank() == 0:
            self.thread = Thread(target=self._write)
            self.thread.start()
            if self.waits:
                self.thread.join()
        else:
            dist.barrier()


def goes_on_beside_its_writer(rank: RankContext) -> None:
    saver = Saver(waits=False)
    for step in range(3):
        dist.all_reduce(torch.ones(2))
        if step == 1:
            saver.save()
    if saver.thread is not None:
        saver.thread.join()


def test_who_makes_its_half_in_a_thread_and_goes_on(fresh: World) -> None:
    (found,) = run(fresh, goes_on_beside_its_writer, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.CALL_ORDERING, (0,))
    assert marks(found)[0] == {"written"}
    assert "in another thread, and goes on meanwhile" in found.lines[0]


def test_who_waits_for_that_thread_is_right(fresh: World) -> None:
    def body(rank: RankContext) -> None:
        dist.all_reduce(torch.ones(2))
        Saver(waits=True).save()
        dist.all_reduce(torch.ones(2))

    assert run(fresh, body).ok
