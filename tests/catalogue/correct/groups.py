"""Groups that look as if a rank were missing from them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.catalogue.programs import Rank, correct


@correct(ranks=4)
def halves_that_do_different_things(rank: Rank) -> None:
    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    value = torch.ones(1 + rank.index % 2)
    if rank.index % 2:
        for _ in range(3):
            dist.all_reduce(value, group=halves[1])
    else:
        dist.broadcast(value, src=0, group=halves[0])
        dist.barrier(group=halves[0])
    dist.barrier()


@correct(ranks=3)
def a_group_that_nobody_uses(rank: Rank) -> None:
    spare = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1))
    if rank.index < 2:
        dist.destroy_process_group(spare)


@correct(ranks=3)
def a_group_of_one(rank: Rank) -> None:
    alone = [dist.new_group([member]) for member in range(3)][rank.index]
    value = torch.full((2,), float(rank.index))
    for _ in range(rank.index + 1):
        dist.all_reduce(value, group=alone)
    dist.barrier(group=alone)
    assert value.tolist() == [rank.index] * 2
    dist.barrier()


@correct(ranks=6)
def nested_groups(rank: Rank) -> None:
    outer, inner = dist.new_group([0, 1, 2, 3]), dist.new_group([1, 2])
    value = torch.ones(2)
    if rank.index in (1, 2):
        dist.all_reduce(value, group=inner)
    if rank.index < 4:
        dist.all_reduce(value, group=outer)
    dist.all_reduce(value)
    assert value.sum().item() == 2 * (6 * 4 + 2) if rank.index < 4 else True


@correct(ranks=2)
def made_and_destroyed_again_and_again(rank: Rank) -> None:
    for size in range(1, 8):
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(size), group=group)
        dist.destroy_process_group(group)


@correct(ranks=4)
def overlapping_groups_in_one_order(rank: Rank) -> None:
    lower, upper = dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])
    value = torch.ones(1)
    if rank.index < 3:
        dist.all_reduce(value, group=lower)
    if rank.index > 0:
        dist.all_reduce(value, group=upper)


@correct(ranks=4)
def two_groups_in_two_orders_without_waiting(rank: Rank) -> None:
    """Work that is under way together does not mind the order it was issued in, if groups differ."""
    first, second = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 1, 2, 3])
    groups = [first, second] if rank.index % 2 else [second, first]
    works = [dist.all_reduce(torch.ones(8), group=group, async_op=True) for group in groups]
    for work in works:
        work.wait()


@correct(ranks=4)
def a_mesh_of_two_by_two(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    value = torch.full((4,), float(rank.index))
    dist.all_reduce(value, group=mesh.get_group("tensor"))
    dist.all_reduce(value, group=mesh.get_group("data"))
    assert value.tolist() == [6.0] * 4


@correct(ranks=6)
def rows_and_columns_in_a_loop(rank: Rank) -> None:
    rows = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    columns = [dist.new_group([column, column + 3]) for column in range(3)]
    for step in range(20):
        dist.all_reduce(torch.ones(2), group=rows[rank.index // 3])
        if step % 3 == rank.index % 3:  # one column after the other
            dist.all_reduce(torch.ones(3), group=columns[rank.index % 3])
    dist.barrier()


@correct(ranks=4)
def a_root_by_its_rank_in_the_group(rank: Rank) -> None:
    group = dist.new_group([1, 3])
    value = torch.full((1,), float(rank.index))
    if rank.index == 1:
        dist.broadcast(value, src=dist.get_global_rank(group, 1), group=group)
    elif rank.index == 3:
        dist.broadcast(value, src=3, group=group)
    assert value.item() == (3 if rank.index % 2 else rank.index)
    dist.barrier()


@correct(ranks=3)
def gathered_in_a_sub_group(rank: Rank) -> None:
    group = dist.new_group([0, 2])
    everyones: list[Any] = [None, None]
    if rank.index != 1:
        dist.all_gather_object(everyones, {"rank": rank.index}, group=group)
        assert [each["rank"] for each in everyones] == [0, 2]
        dist.destroy_process_group(group)
    dist.barrier()


@correct(ranks=3)
def synchronized_among_its_members_only(rank: Rank) -> None:
    """With `use_local_synchronization` those who are not in a group need not call."""
    if rank.index < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()


@correct(ranks=4)
def each_half_synchronized_by_itself(rank: Rank) -> None:
    """With `use_local_synchronization` a group is known by its members, and each half may make its own."""
    members = [0, 2] if rank.index % 2 == 0 else [1, 3]
    half = dist.new_group(members, use_local_synchronization=True)
    value = torch.full((2,), float(rank.index))
    dist.all_reduce(value, group=half)
    assert value.tolist() == [float(sum(members))] * 2
    dist.barrier()


@correct(ranks=4)
def each_makes_one_of_itself_alone(rank: Rank) -> None:
    """Alone in a group nobody is looked for: it does not matter that all have made another one."""
    alone = dist.new_group([rank.index])
    value = torch.full((2,), float(rank.index))
    dist.all_reduce(value, group=alone)
    assert value.tolist() == [rank.index] * 2
    dist.barrier()


@correct(ranks=4)
def layers_of_two_groups_in_turn(rank: Rank) -> None:
    """One line serves both groups, on all ranks alike."""
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank.index // 2]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.index % 2]
    for group in (tensor, data, tensor, tensor, data):
        dist.all_reduce(torch.ones(3), group=group)


@correct(ranks=4)
def a_group_per_phase(rank: Rank) -> None:
    for members in ([0, 1, 2, 3], [0, 1], [2, 3], [0, 3]):
        group = dist.new_group(members)
        if rank.index in members:
            dist.all_reduce(torch.ones(len(members)), group=group)
            dist.destroy_process_group(group)
    dist.barrier()


@correct(ranks=2)
def eight_groups_in_turn(rank: Rank) -> None:
    """One for each of what may be under way together, kept to the end."""
    groups = [dist.new_group([0, 1]) for _ in range(8)]
    for step in range(24):
        dist.all_reduce(torch.ones(2), group=groups[step % 8])


@correct(ranks=2)
def a_group_for_each_layer(rank: Rank) -> None:
    """Layers share their first weights one after the other, and what they compute later on."""
    layers = []
    for width in range(1, 9):
        layers.append((dist.new_group([0, 1]), torch.ones(width)))
        dist.broadcast(layers[-1][1], src=0, group=layers[-1][0])
    for group, weights in layers:
        dist.all_reduce(weights, group=group)


@correct(ranks=3)
def tried_in_turn_and_destroyed_together(rank: Rank) -> None:
    tried = []
    for size in range(8):
        tried.append(dist.new_group([0, 1, 2]))
        dist.all_reduce(torch.ones(size + 1), group=tried[-1])
    for group in tried:
        dist.destroy_process_group(group)
    dist.barrier()


@correct(ranks=4)
def three_meshes_that_nobody_takes_down(rank: Rank) -> None:
    for shape in ((4, 1), (2, 2), (1, 4)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
        dist.all_reduce(torch.ones(2), group=mesh.get_group("data"))
        dist.all_reduce(torch.ones(2), group=mesh.get_group("tensor"))


@correct(ranks=4)
def a_mesh_of_one_shape_for_each_case(rank: Rank) -> None:
    """It cannot be destroyed, nor is it missed: the next case is not to know of this one."""
    for size in (2, 4, 8, 12, 16, 20):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        rows = torch.full((size,), float(rank.index))
        dist.all_reduce(rows, group=mesh.get_group("data"))
        dist.all_reduce(rows, group=mesh.get_group("tensor"))
        assert rows.sum() == 6 * size


@correct(ranks=2)
def all_taken_down_at_once(rank: Rank) -> None:
    for _ in range(8):
        dist.all_reduce(torch.ones(2), group=dist.new_group([0, 1]))
    dist.destroy_process_group()


@correct(ranks=4)
def each_pair_is_tried_once(rank: Rank) -> None:
    """One line, and a group of other members each time, kept to the end."""
    for one in range(4):
        for other in range(one + 1, 4):
            group = dist.new_group([one, other])
            if rank.index in (one, other):
                dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()
