"""Between machines a payload travels once, and all ranks of a machine map it: as if this machine were several."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_object, gather, gather_object
from rankdrill.gathers.agreement import channel
from rankdrill.gathers.agreement.line import LineDownError
from rankdrill.gathers.agreement.registry import channel_of
from rankdrill.gathers.local import segment
from rankdrill.gathers.transfer import between_machines as relay
from tests.gathers.attempts import TIMEOUT_S, all_alike, attempt, replaced

LARGE = 100_000
Machines = Sequence[Sequence[int]]
PARTITIONS = [((0, 1), (2, 3)), ((0, 1, 2), (3,)), ((0,), (1, 2, 3)), ((0, 2), (1, 3)), ((0,), (1, 3), (2,))]


@pytest.fixture(scope="module")
def world() -> Iterator[rankdrill.World]:
    with rankdrill.World(4) as four_ranks:
        yield four_ranks


@contextlib.contextmanager
def spread(machines: Machines) -> Iterator[Any]:
    """A group of all ranks that finds itself spread over `machines`."""

    def neighbours(self: Any, board: Any) -> list[int]:
        return [rank for machine in machines if self.rank in machine for rank in machine if rank != self.rank]

    with replaced(channel.Channel, "_neighbours", neighbours):
        group = dist.new_group([0, 1, 2, 3])
        gather(None, group=group, timeout=TIMEOUT_S)
        yield group


def sized(rank: int, turn: int) -> int:
    """Small on some ranks, large on others, by turns."""
    return (LARGE + 1000 * rank) if (rank + turn) % 4 or turn == 3 else 10 * rank


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("machines", PARTITIONS)
def test_every_rank_gets_everything(world: rankdrill.World, machines: Machines) -> None:
    def body() -> Any:
        rank, seen = dist.get_rank(), []
        with spread(machines) as group:
            for turn in range(5):
                received: list[Any] = [None] * 4
                all_gather_object(received, (rank, b"x" * sized(rank, turn)), group=group, timeout=TIMEOUT_S)
                seen.append([(who, len(data)) for who, data in received])
                if turn == 0:
                    before = descriptors()
            return channel_of(group).hosts, seen, descriptors() - before

    hosts, seen, more = all_alike(world.run(body).unwrap())
    assert hosts == machines
    assert seen == [[(rank, sized(rank, turn)) for rank in range(4)] for turn in range(5)]
    assert more == 0


@pytest.mark.parametrize("machines", PARTITIONS)
@pytest.mark.parametrize("last", [0, 1, 3])
def test_one_rank_gets_everything(world: rankdrill.World, machines: Machines, last: int) -> None:
    def body() -> Any:
        rank, seen = dist.get_rank(), []
        with spread(machines) as group:
            for turn in range(4):
                received = [None] * 4 if rank == last else None
                gather_object(b"x" * sized(rank, turn), received, dst=last, group=group, timeout=TIMEOUT_S)
                seen.append([len(one) for one in received or ()])  # type: ignore[arg-type]
        return seen

    seen = world.run(body).unwrap()
    assert seen[last] == [[sized(rank, turn) for rank in range(4)] for turn in range(4)]
    assert all(one == [[]] * 4 for rank, one in enumerate(seen) if rank != last)


def test_tensors_are_independent(world: rankdrill.World) -> None:
    def body() -> Any:
        with spread(((0, 1), (2, 3))) as group:
            received = gather(torch.full((LARGE,), float(dist.get_rank())), group=group, timeout=TIMEOUT_S)
            for tensor in received:
                tensor += 10 * (dist.get_rank() + 1)
            gather(None, group=group, timeout=TIMEOUT_S)
            return [tensor.unique().tolist() for tensor in received]

    for rank, seen in enumerate(world.run(body).unwrap()):
        assert seen == [[10.0 * (rank + 1) + one] for one in range(4)]


def test_it_says_why(world: rankdrill.World) -> None:
    def body() -> Any:
        with spread(((0, 1), (2, 3))) as group:
            return gather(b"x" * LARGE, explain=True, group=group, timeout=TIMEOUT_S)[1]

    why = all_alike(world.run(body).unwrap())
    assert why.startswith("once to each machine, shared memory within: 4 ranks on 2 machines (0, 1 | 2, 3); 4 of 4")


@pytest.mark.parametrize("what", ["create", "reserve", "table_of"])
def test_without_memory_on_a_rank_all_use_the_network(world: rankdrill.World, what: str) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    def body() -> Any:
        with spread(((0, 1), (2, 3))) as group:
            with replaced(segment, what, full, dist.get_rank() == 2):
                lengths = [len(one) for one in gather(b"x" * LARGE, group=group, timeout=TIMEOUT_S)]
            return lengths, len(gather(b"y" * LARGE, group=group, timeout=TIMEOUT_S)[1])

    assert all_alike(world.run(body).unwrap()) == ([LARGE] * 4, LARGE)


def test_a_transfer_that_breaks_fails_on_all_ranks(world: rankdrill.World) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise LineDownError("the cable is cut")

    def body() -> Any:
        with spread(((0, 1), (2, 3))) as group:
            with replaced(relay.Relay, "carry", broken, dist.get_rank() == 1):
                failed = attempt(gather, b"x" * LARGE, group=group, timeout=TIMEOUT_S)
            return failed, len(gather(b"y" * LARGE, group=group, timeout=TIMEOUT_S)[3])

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, after) == ("PeerLost", LARGE)


def test_a_payload_that_does_not_load_on_a_rank_fails_on_all(world: rankdrill.World) -> None:
    def body() -> Any:
        def forgotten(*_: Any) -> Any:
            raise OSError(2, "gone")

        with spread(((0, 1), (2, 3))) as group:
            with replaced(segment, "load", forgotten, dist.get_rank() == 3):
                failed = attempt(gather, b"x" * LARGE, group=group, timeout=TIMEOUT_S)
            return failed, len(gather(b"y" * LARGE, group=group, timeout=TIMEOUT_S)[3])

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks, after) == ("DecodeError", (3,), LARGE)
