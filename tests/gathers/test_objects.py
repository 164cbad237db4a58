"""all_gather_object on real ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.errors import UsageError
from rankdrill.gathers import all_gather_object
from tests.gathers.attempts import TIMEOUT_S, Raised, Unloadable, Unpicklable, all_alike, attempt, raiser, replaced


def gather(value: Any, entries: int | None = None, group: Any = None) -> list[Any]:
    size = dist.get_world_size(group) if entries is None else entries
    values: list[Any] = ["untouched"] * size
    all_gather_object(values, value, group, timeout=TIMEOUT_S)
    return values


def test_values_come_in_rank_order(world: rankdrill.World) -> None:
    got = world.run(lambda: gather((dist.get_rank(), None, b""))).unwrap()
    assert all_alike(got) == [(rank, None, b"") for rank in range(4)]


@pytest.mark.parametrize("sizes", [(0, 0, 0, 0), (8 << 20, 10, 0, 70_000), (1 << 20,) * 4])
def test_payloads_of_any_size(world: rankdrill.World, sizes: tuple[int, ...]) -> None:
    def body() -> list[tuple[int, int]]:
        rank = dist.get_rank()
        values = gather(bytes([rank]) * sizes[rank])
        return [(len(value), sum(value[:3])) for value in values]

    assert all_alike(world.run(body).unwrap()) == [(n, rank * min(n, 3)) for rank, n in enumerate(sizes)]


def test_what_arrives_is_writable_and_nobody_elses(world: rankdrill.World) -> None:
    def body() -> tuple[float, float]:
        mine = torch.ones(100_000)
        values = gather(mine)
        for value in values:
            value += 1
        return mine.sum().item(), sum(value.sum().item() for value in values)

    assert all_alike(world.run(body).unwrap()) == (100_000, 4 * 200_000)


def test_subgroup_whose_ranks_are_not_global_ranks(world: rankdrill.World) -> None:
    def body() -> list[int]:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        values = [-1, -1]
        for group in groups:
            # A no-op on the ranks outside.
            all_gather_object(values, dist.get_rank() * 10, group, timeout=TIMEOUT_S)
        return values

    assert world.run(body).unwrap() == [[0, 10], [0, 10], [20, 30], [20, 30]]


def test_world_of_one_copies_too() -> None:
    def body() -> tuple[bool, bool]:
        value = [1]
        gathered = gather(value)
        return gathered == [[1]], gathered[0] is value

    with rankdrill.World(1) as world:
        assert world.run(body).unwrap() == [(True, False)]


def fails_then_works(value: Any, entries: int | None = None) -> tuple[Any, Any]:
    failed = attempt(gather, value, entries)
    return failed, attempt(gather, dist.get_rank())


def test_a_payload_that_cannot_be_pickled(world: rankdrill.World) -> None:
    got = world.run(lambda: fails_then_works(Unpicklable() if dist.get_rank() == 2 else 0)).unwrap()
    failed, after = all_alike(got)
    assert (failed.kind, failed.ranks) == ("EncodeError", (2,))
    assert "will not be pickled" in failed.text
    assert after == [0, 1, 2, 3]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_payload_that_cannot_be_loaded(world: rankdrill.World, rank: int) -> None:
    got = world.run(lambda: fails_then_works(Unloadable() if dist.get_rank() == rank else 0)).unwrap()
    failed, after = all_alike(got)
    assert (failed.kind, failed.ranks) == ("DecodeError", (rank,))
    assert after == [0, 1, 2, 3]


def test_a_rank_that_alone_cannot_load_is_the_one_named(world: rankdrill.World) -> None:
    def body() -> Any:
        with replaced(torch, "frombuffer", raiser(ValueError("broken here")), dist.get_rank() == 3):
            return attempt(gather, torch.ones(5000))

    def wrong_only_on_load() -> Any:
        import pickle

        with replaced(pickle, "loads", raiser(ValueError("broken here")), dist.get_rank() == 3):
            return attempt(gather, 1)

    assert all_alike(world.run(wrong_only_on_load).unwrap()).ranks == (3,)
    assert all_alike(world.run(body).unwrap()).ranks == (3,)


@pytest.mark.parametrize("entries", [0, 3])
def test_a_list_that_is_too_short(world: rankdrill.World, entries: int) -> None:
    got = world.run(lambda: fails_then_works(0, entries if dist.get_rank() == 1 else None)).unwrap()
    failed, after = all_alike(got)
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (1,))
    assert after == [0, 1, 2, 3]


def test_no_memory_to_receive(world: rankdrill.World, receiving: tuple[Any, str]) -> None:
    def body() -> tuple[Any, Any]:
        with replaced(*receiving, raiser(MemoryError("none left")), dist.get_rank() == 2):
            failed = attempt(gather, b"x" * 3_000_000)
        return failed, attempt(gather, dist.get_rank())

    failed, after = all_alike(world.run(body).unwrap())
    assert failed.ranks == (2,)
    assert "none left" in failed.text
    assert after == [0, 1, 2, 3]


def test_no_memory_for_the_agreement(world: rankdrill.World, line: str) -> None:
    memory = "empty" if line == "local" else "zeros"

    def body() -> tuple[Any, Any]:
        with replaced(torch, memory, raiser(MemoryError("none left")), dist.get_rank() == 0):
            failed = attempt(gather, 1)
        return failed, attempt(gather, dist.get_rank())

    failed, after = all_alike(world.run(body).unwrap())
    assert failed.ranks == (0,)
    assert after == [0, 1, 2, 3]


def test_the_list_is_untouched_after_a_failure(world: rankdrill.World) -> None:
    def body() -> list[Any]:
        values: list[Any] = ["untouched"] * 4
        failed = attempt(all_gather_object, values, Unpicklable() if dist.get_rank() == 0 else 1, timeout=TIMEOUT_S)
        assert isinstance(failed, Raised)
        return values

    assert all_alike(world.run(body).unwrap()) == ["untouched"] * 4


def test_needs_an_initialised_default_group() -> None:
    with pytest.raises(UsageError, match="init_process_group"):
        all_gather_object([None], 1)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_that_is_no_time(world: rankdrill.World, timeout: float) -> None:
    def body() -> str:
        with pytest.raises(UsageError, match="timeout"):
            all_gather_object([0] * 4, 1, timeout=timeout)
        return "refused"

    assert all_alike(world.run(body).unwrap()) == "refused"
