"""What callers give for results: all that torch writes to is taken, and what is wrong is known to all before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_object, gather_object
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt

RANKS = 3


class Entries:
    """Takes entries, and nothing else."""

    def __init__(self) -> None:
        self.taken: dict[int, Any] = {}

    def __setitem__(self, index: int, value: Any) -> None:
        self.taken[index] = value


def entries_of(given: Any) -> list[Any]:
    return [given.taken[index] if isinstance(given, Entries) else given[index] for index in range(RANKS)]


TAKEN: dict[str, Callable[[], Any]] = {
    "list": lambda: [None] * RANKS,
    "longer": lambda: [None] * RANKS + ["kept"],
    "deque": lambda: deque([None] * RANKS),
    "array": lambda: numpy.empty(RANKS, dtype=object),
    "dict": dict,
    "no length": Entries,
}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "tuple": (lambda: (None,) * RANKS, "is a tuple, whose entries cannot be set; give a list of 3 entries"),
    "shorter": (lambda: [None] * (RANKS - 1), "has 2 entries for a group of 3"),
    "none": (lambda: None, "is a NoneType, whose entries cannot be set"),
}


@pytest.fixture(scope="module")
def world() -> Any:
    with rankdrill.World(RANKS) as world:
        yield world


@pytest.mark.parametrize("kind", TAKEN)
def test_what_torch_writes_to(world: rankdrill.World, kind: str) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        ours, theirs = TAKEN[kind](), TAKEN[kind]()
        dist.all_gather_object(theirs, rank)
        all_gather_object(ours, rank, timeout=TIMEOUT_S)
        same = entries_of(ours) == entries_of(theirs)
        received = TAKEN[kind]() if rank == 1 else []
        gather_object(rank, received, dst=1, timeout=TIMEOUT_S)
        kept = len(ours) == RANKS or ours[RANKS] == "kept" if isinstance(ours, list) else True
        return same, kept, entries_of(received) == [0, 1, 2] if rank == 1 else received == []

    assert all_alike(world.run(body).unwrap()) == (True, True, True)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_written_to_is_known_to_all(world: rankdrill.World, kind: str) -> None:
    make, why = REFUSED[kind]

    def body() -> Any:
        rank = dist.get_rank()
        mine = make() if rank == 2 else ["before"] * RANKS
        failed = attempt(all_gather_object, mine, rank, timeout=TIMEOUT_S)
        untouched = rank == 2 or mine == ["before"] * RANKS
        return failed.kind, failed.ranks, f"object_list {why}" in failed.text, untouched

    assert all_alike(world.run(body).unwrap()) == ("ArgumentMismatch", (2,), True, True)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_the_receiver_cannot_write_to_is_known_to_all(world: rankdrill.World, kind: str) -> None:
    make, why = REFUSED[kind]
    told = "object_gather_list is missing on the receiving rank" if kind == "none" else f"object_gather_list {why}"

    def body() -> Any:
        rank = dist.get_rank()
        failed = attempt(gather_object, rank, make() if rank == 1 else None, dst=1, timeout=TIMEOUT_S)
        return failed.kind, failed.ranks, told in failed.text

    assert all_alike(world.run(body).unwrap()) == ("ArgumentMismatch", (1,), True)


def test_a_list_that_is_empty_is_none_where_nothing_is_received(world: rankdrill.World) -> None:
    def body() -> Any:
        rank = dist.get_rank()
        received = [None] * RANKS if rank == 0 else []
        gather_object(rank, received, timeout=TIMEOUT_S)
        wrong = attempt(gather_object, rank, [None] * RANKS, timeout=TIMEOUT_S)
        return received == ([0, 1, 2] if rank == 0 else []), wrong.kind, wrong.ranks

    assert all_alike(world.run(body).unwrap()) == (True, "ArgumentMismatch", (1, 2))
