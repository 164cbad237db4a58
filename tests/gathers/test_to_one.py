"""gather_object on real ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import gather_object
from tests.gathers.attempts import TIMEOUT_S, Unloadable, Unpicklable, all_alike, attempt


def gather(value: Any, at: int, **kwargs: Any) -> Any:
    """What the receiver got; None elsewhere. `at` is the receiver's global rank."""
    values = [None] * dist.get_world_size(kwargs.get("group")) if dist.get_rank() == at else None
    gather_object(value, values, timeout=TIMEOUT_S, **kwargs)
    return values


@pytest.mark.parametrize("nbytes", [0, 70_000, 8 << 20])
def test_only_the_receiver_receives(world: rankdrill.World, nbytes: int) -> None:
    def body() -> Any:
        got = gather(bytes([dist.get_rank()]) * nbytes, at=2, dst=2)
        return got and [(len(value), value[:1]) for value in got]

    expected = [(nbytes, bytes([rank])[: min(nbytes, 1)]) for rank in range(4)]
    assert world.run(body).unwrap() == [None, None, expected, None]


def test_by_default_global_rank_0(world: rankdrill.World) -> None:
    assert world.run(lambda: gather(dist.get_rank(), at=0)).unwrap()[0] == [0, 1, 2, 3]


def test_dst_is_global_and_group_dst_is_not(world: rankdrill.World) -> None:
    def body() -> Any:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = groups[dist.get_rank() // 2]
        first = dist.get_rank() // 2 * 2
        return (
            gather(dist.get_rank(), at=first + 1, group=mine, dst=first + 1),
            gather(torch.tensor(dist.get_rank()), at=first + 1, group=mine, group_dst=1),
        )

    assert world.run(body).unwrap() == [(None, None), ([0, 1], [0, 1]), (None, None), ([2, 3], [2, 3])]


def wrong(case: str) -> tuple[Any, Any]:
    rank = dist.get_rank()
    values: list[Any] | None = [None] * 4 if rank == 0 else None
    value: Any = rank
    arguments: dict[str, Any] = {"dst": 0}
    match case:
        case "no list on the receiver":
            values = None
        case "a list elsewhere":
            values = [None] * 4 if rank in (0, 3) else None
        case "a short list":
            values = [None] * 3 if rank == 0 else None
        case "one other dst":
            arguments = {"dst": 0 if rank != 2 else 1}
        case "no such dst":
            arguments = {"dst": 9}
        case "both dst and group_dst":
            arguments = {"dst": 0, "group_dst": 0}
        case "unpicklable":
            value = Unpicklable() if rank == 1 else rank
        case "unloadable":
            value = Unloadable() if rank == 3 else rank
    failed = attempt(gather_object, value, values, timeout=TIMEOUT_S, **arguments)
    return failed, attempt(gather, rank, 0)


@pytest.mark.parametrize(
    ("case", "kind", "ranks"),
    [
        ("no list on the receiver", "ArgumentMismatch", (0,)),
        ("a list elsewhere", "ArgumentMismatch", (3,)),
        ("a short list", "ArgumentMismatch", (0,)),
        ("one other dst", "ArgumentMismatch", (2,)),
        ("no such dst", "ArgumentMismatch", (0, 1, 2, 3)),
        ("both dst and group_dst", "ArgumentMismatch", (0, 1, 2, 3)),
        ("unpicklable", "EncodeError", (1,)),
        ("unloadable", "DecodeError", (3,)),
    ],
)
def test_all_ranks_fail_together(world: rankdrill.World, case: str, kind: str, ranks: tuple[int, ...]) -> None:
    got = world.run(wrong, case).unwrap()
    failed = all_alike([failed for failed, _ in got])
    assert (failed.kind, failed.ranks) == (kind, ranks)
    assert [after for _, after in got] == [[0, 1, 2, 3], None, None, None]


def test_the_list_is_untouched_after_a_failure(world: rankdrill.World) -> None:
    def body() -> Any:
        values = ["untouched"] * 4 if dist.get_rank() == 0 else None
        failed = attempt(gather_object, Unloadable() if dist.get_rank() == 2 else 1, values, timeout=TIMEOUT_S)
        return failed.kind, failed.ranks, values

    got = world.run(body).unwrap()
    assert got == [("DecodeError", (2,), ["untouched"] * 4)] + [("DecodeError", (2,), None)] * 3
