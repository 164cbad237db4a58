"""all_gather_list on real ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather, all_gather_list
from rankdrill.gathers.agreement.call import GatherCall
from rankdrill.gathers.agreement.line import Line
from rankdrill.gathers.encoding.coding import coding_for
from tests.gathers.attempts import TIMEOUT_S, Unpicklable, all_alike, attempt, replaced


def gather(value: Any, max_size: int = 16384, group: Any = None) -> list[Any]:
    return all_gather_list(value, group, max_size, timeout=TIMEOUT_S)


@pytest.mark.parametrize(("nbytes", "max_size"), [(0, 100), (900, 16384), (16_000, 16384), (1 << 20, 1 << 21)])
def test_values_come_in_rank_order(world: rankdrill.World, nbytes: int, max_size: int) -> None:
    def body() -> Any:
        # Twice: the first call with a new max_size goes another way than the next.
        both = [gather((dist.get_rank(), b"x" * nbytes), max_size) for _ in range(2)]
        return [[(rank, len(data)) for rank, data in values] for values in both]

    assert all_alike(world.run(body).unwrap()) == [[(rank, nbytes) for rank in range(4)]] * 2


def test_one_payload_too_large(world: rankdrill.World) -> None:
    def body() -> tuple[Any, Any]:
        return attempt(gather, "x" * (500 if dist.get_rank() == 2 else 5), 100), attempt(gather, dist.get_rank(), 100)

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("OversizeError", (2,))
    assert after == [0, 1, 2, 3]


@pytest.mark.parametrize("weights_only", [False, True])
def test_a_payload_of_just_the_size_allowed_fits(world: rankdrill.World, weights_only: bool) -> None:
    """From the second call on it travels in the exchange, like all that is smaller."""

    def body() -> Any:
        value = "x" * 10_000
        size = coding_for(weights_only).encode(value).content_bytes
        first = attempt(all_gather_list, value, None, size, weights_only=weights_only, timeout=TIMEOUT_S)
        with replaced(GatherCall, "announce", None), replaced(Line, "broadcast", None):
            again = attempt(all_gather_list, value, None, size, weights_only=weights_only, timeout=TIMEOUT_S)
        failed = attempt(all_gather_list, value, None, size - 1, weights_only=weights_only, timeout=TIMEOUT_S)
        return first == again == [value] * 4, failed.kind, failed.ranks

    assert all_alike(world.run(body).unwrap()) == (True, "OversizeError", (0, 1, 2, 3))


@pytest.mark.parametrize("before", [None, 16384, 60_000])
def test_ranks_that_disagree_on_max_size(world: rankdrill.World, before: int | None) -> None:
    def body() -> tuple[Any, Any]:
        if before is not None:
            gather(0, before)
        disagreed = attempt(gather, 1, 32768 if dist.get_rank() == 1 else 16384)
        return disagreed, attempt(gather, dist.get_rank())

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (1,))
    assert after == [0, 1, 2, 3]


@pytest.mark.parametrize("max_size", [0, -5, 2.5])
def test_a_max_size_that_is_none(world: rankdrill.World, max_size: Any) -> None:
    failed = all_alike(world.run(lambda: attempt(gather, 1, max_size)).unwrap())
    assert (failed.kind, failed.ranks) == ("ArgumentMismatch", (0, 1, 2, 3))


def test_an_unpicklable_payload(world: rankdrill.World) -> None:
    def body() -> tuple[Any, Any]:
        return attempt(gather, Unpicklable() if dist.get_rank() == 0 else 1), attempt(gather, dist.get_rank())

    failed, after = all_alike(world.run(body).unwrap())
    assert (failed.kind, failed.ranks) == ("EncodeError", (0,))
    assert after == [0, 1, 2, 3]


def test_from_the_second_call_on_one_exchange_carries_everything(world: rankdrill.World) -> None:
    def body() -> list[int]:
        counts: list[int] = []
        original = Line.exchange
        for _ in range(3):
            sizes: list[int] = []

            def counted(self: Line, mine: bytearray, timeout_s: float, seen: list[int] = sizes) -> Any:
                seen.append(len(mine))
                return original(self, mine, timeout_s)

            with replaced(Line, "exchange", counted), replaced(Line, "broadcast", None):
                # Any broadcast would be an error; the first call has nothing that needs one.
                gather("x" * (10 if not counts else 10_000))
            counts.append(len(sizes))
        return counts

    assert all_alike(world.run(body).unwrap()) == [2, 2, 2]


def test_beside_other_paths_and_in_a_subgroup(world: rankdrill.World) -> None:
    def body() -> tuple[Any, Any, Any]:
        group = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
        mixed = gather(torch.arange(2000)), all_gather(dist.get_rank(), timeout=TIMEOUT_S)
        return len(mixed[0]), mixed[1], gather(dist.get_rank(), group=group)

    got = world.run(body).unwrap()
    assert [item[2] for item in got] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert all_alike([item[:2] for item in got]) == (4, [0, 1, 2, 3])
