"""Groups side by side that come apart in one way: both halves are told, and nobody is blamed for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind

DEADLINE_S = 60.0


def only(world: World, body: Callable[[], None]) -> Finding:
    (finding,) = world.run(body, deadline=DEADLINE_S).findings
    return finding


def my_pair() -> dist.ProcessGroup:
    pairs: list[dist.ProcessGroup] = [
        dist.new_group([first, first + 1]) for first in range(0, dist.get_world_size(), 2)
    ]
    return pairs[dist.get_rank() // 2]


def the_first_of_each() -> None:
    mine = my_pair()
    if dist.get_rank(mine) == 0:
        dist.all_reduce(torch.ones(4), group=mine)  # odd
    dist.barrier()


def the_first_of_each_after_some_rounds() -> None:
    mine = my_pair()
    for _ in range(3):
        dist.all_reduce(torch.ones(4), group=mine)
    if dist.get_rank(mine) == 0:
        dist.all_reduce(torch.ones(4), group=mine)  # odd
    dist.barrier()


def the_second_of_each_goes_past_one() -> None:
    mine = my_pair()
    for step in range(4):
        if dist.get_rank(mine) == 1 and step == 2:
            continue
        dist.all_reduce(torch.ones(4), group=mine)  # odd
    dist.barrier()


def by_a_mesh() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    weight = distribute_tensor(torch.ones(4, 4), mesh["tp"], [Shard(0)])
    if mesh["tp"].get_local_rank() == 0:
        weight.full_tensor()  # odd
    dist.barrier()


@pytest.mark.parametrize(
    "body",
    [the_first_of_each, the_first_of_each_after_some_rounds, the_second_of_each_goes_past_one, by_a_mesh],
)
def test_all_that_came_apart_are_told_and_nobody_is_blamed(four: World, body: Callable[[], None]) -> None:
    finding = only(four, body)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, ())
    assert [side.ranks for side in finding.sides] == [(0, 2), (1, 3)]
    assert "each on a group of its own" in finding.sides[0].did


def test_by_a_function_of_torchs_its_name_is_told(four: World) -> None:
    assert "wait in DTensor.full_tensor's all_gather" in only(four, by_a_mesh).sides[0].did


def two_pairs_of_three_make_one_more() -> None:
    mine = my_pair()
    dist.all_reduce(torch.ones(4), group=mine)
    if dist.get_rank() in (0, 2):
        dist.all_reduce(torch.ones(4), group=mine)  # odd
    dist.barrier()


def two_pairs_of_three_are_one_short() -> None:
    mine = my_pair()
    for turn in range(3):
        if dist.get_rank() in (1, 3) and turn == 2:
            break
        dist.all_reduce(torch.ones(4), group=mine)  # odd
    dist.barrier()


@pytest.mark.parametrize(
    ("body", "kind", "culprits"),
    [
        (two_pairs_of_three_make_one_more, FindingKind.EXTRA, (0, 2)),
        (two_pairs_of_three_are_one_short, FindingKind.MISSING, (1, 3)),
    ],
)
def test_a_group_that_stayed_together_tells_who_is_odd_in_all_others(
    body: Callable[[], None], kind: FindingKind, culprits: tuple[int, ...]
) -> None:
    with World(6) as world:
        finding = only(world, body)
    assert (finding.kind, finding.culprits) == (kind, culprits)


def test_one_pair_alone_is_told_by_the_other(four: World) -> None:
    def body() -> None:
        mine = my_pair()
        for step in range(4):
            if dist.get_rank() == 1 and step == 2:
                continue
            dist.all_reduce(torch.ones(4), group=mine)
        dist.barrier()

    finding = only(four, body)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (1,))
