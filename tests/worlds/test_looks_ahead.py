"""Tensors that do not fit, brought by one line of a loop: whether it is their turn is told by what comes next."""

from __future__ import annotations

import errno
import linecache
import os
import signal
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


def reduced(value: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(value)
    return value


def sums_of_what_may_be_empty(late: int, by_a_helper: bool) -> None:
    """The sum of no numbers is an integer, as the count of them is, which is reduced next."""
    if dist.get_rank() == late:
        time.sleep(0.05)
    for part in range(3):
        values = [] if dist.get_rank() == 1 and part == 2 else [0.5, 0.25]
        total, count = torch.tensor(sum(values)), torch.tensor(len(values))
        if by_a_helper:
            reduced(total)  # total
            reduced(count)
        else:
            dist.all_reduce(total)  # total
            dist.all_reduce(count)


@pytest.mark.parametrize("by_a_helper", [False, True])
@pytest.mark.parametrize("late", [0, 1])
def test_what_comes_next_by_another_line_says_nothing_of_the_order(world: World, late: int, by_a_helper: bool) -> None:
    (finding,) = world.run(sums_of_what_may_be_empty, late, by_a_helper).findings
    assert (finding.kind, finding.culprits) == (FindingKind.DATATYPE, (1,))
    site = finding.sides[0].sites[0]
    assert site is not None
    told = site.caller if by_a_helper else site
    assert told is not None
    assert linecache.getline(told.file, told.line).endswith("# total\n")


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


def changes_what_others_see(how: str, place: str) -> float:
    """Had it gone on; the copy may not."""
    passed = 0
    for name in turned(dist.get_rank()):
        dist.all_reduce(torch.ones(SIZES[name]))
        passed += 1
        if how == "a store":
            dist.distributed_c10d._get_default_store().add("passed", 1)
        else:
            torch.save(passed, os.path.join(place, f"{dist.get_rank()}-{name}.pt"))
    return passed


@pytest.mark.parametrize("how", ["a store", "a checkpoint"])
def test_nor_does_it_what_python_does_not_see(world: World, how: str, tmp_path: Path) -> None:
    with World(3) as fresh:
        assert fresh.run(changes_what_others_see, how, str(tmp_path)).findings[0].kind is FindingKind.SIZE
    assert list(tmp_path.iterdir()) == []


def looks_ahead_in_vain(why: str) -> None:
    if why == "children are reaped":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    else:
        os.fork = refuse
    in_the_order_of(turned, 1, 0)


def refuse() -> int:
    raise BlockingIOError(errno.EAGAIN, "no more processes")


@pytest.mark.parametrize("why", ["children are reaped", "no process more"])
def test_who_cannot_look_ahead_tells_what_it_has_found(why: str) -> None:
    with World(3) as fresh:
        (finding,) = fresh.run(looks_ahead_in_vain, why).findings
    assert finding.culprits == (1,)
    assert finding.kind is (FindingKind.SIZE if why == "no process more" else FindingKind.CALL_ORDERING)


def computes_long_before_the_next(rank_of_odd: int) -> None:
    for name in turned(dist.get_rank()):
        dist.all_reduce(torch.ones(SIZES[name]))
        time.sleep(30)


def test_what_comes_late_is_not_waited_for(world: World) -> None:
    outcome = world.run(computes_long_before_the_next, 1)
    assert outcome.findings[0].kind in (FindingKind.SIZE, FindingKind.CALL_ORDERING)
    assert outcome.elapsed < 15


# ---------------------------------------------------------------------------------------------- what calls differ


def scattered(value: torch.Tensor) -> None:
    dist.reduce_scatter_tensor(torch.empty(value.numel() // 3), value)


def gathered(value: torch.Tensor) -> None:
    dist.all_gather_into_tensor(torch.empty(value.numel() * 3), value)


FLUSH = {"moments": scattered, "weights": gathered}


class WriteBehind:
    """What was written is flushed in the order in which it was touched last."""

    def __init__(self, touched: list[str]) -> None:
        self.dirty = dict.fromkeys(touched, torch.ones(6))

    def flush(self) -> None:
        while self.dirty:
            name, value = self.dirty.popitem()
            FLUSH[name](value)  # flushed

    def flush_all(self) -> None:
        for name, value in self.dirty.items():
            FLUSH[name](value)  # flushed


@pytest.mark.parametrize("flush", [WriteBehind.flush, WriteBehind.flush_all])
@pytest.mark.parametrize("step", [0, 1])
def test_what_is_taken_from_a_queue_in_another_order_was_not_left_out(
    world: World, flush: Callable[[WriteBehind], None], step: int
) -> None:
    def body() -> None:
        for now in range(3):
            touched = ["weights", "moments"]
            if dist.get_rank() == 1 and now == step:
                touched.reverse()
            flush(WriteBehind(touched))
        dist.barrier()

    (finding,) = world.run(body).findings
    assert (finding.kind, finding.culprits) == (FindingKind.CALL_ORDERING, (1,))
    lines = [site.caller for site in finding.sides[0].sites if site is not None]
    assert lines
    assert lines[0] is not None
    assert linecache.getline(lines[0].file, lines[0].line).endswith("# flushed\n")
