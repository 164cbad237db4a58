"""Group mismatch: the right call on the wrong group, or groups that ranks have different ideas of."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.catalogue.programs import Rank, mistake


@mistake("group mismatch", culprits=(3,), ranks=4)
def as_many_members_but_another_group(rank: Rank) -> None:
    for_metrics = dist.new_group([0, 1, 2, 3])
    group = for_metrics if rank.index == 3 else None
    dist.all_reduce(torch.ones(2), group=group)  # culprit
    dist.barrier()


@mistake("group mismatch", culprits=(2,), ranks=4)
def everybody_instead_of_the_sub_group(rank: Rank) -> None:
    group = dist.new_group([0, 1, 2])
    share = torch.ones(3)
    if rank.index == 2:
        dist.all_reduce(share)  # culprit
    elif rank.index < 2:
        dist.all_reduce(share, group=group)
    dist.barrier()


@mistake("group mismatch", culprits=(1,), ranks=4)
def made_of_other_members(rank: Rank) -> None:
    members = [0, 1, 3] if rank.index == 1 else [0, 1, 2]
    group = dist.new_group(members)  # culprit
    if rank.index in members:
        dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()


@mistake("group mismatch", ranks=4)
def each_half_makes_its_own(rank: Rank) -> None:
    """Both halves are group number one, and meet each other's members under that number."""
    even = rank.index % 2 == 0
    half = dist.new_group([0, 2] if even else [1, 3])  # culprit
    dist.all_reduce(torch.ones(2), group=half)


@mistake("group mismatch", culprits=(3,), ranks=4)
def tensor_parallel_for_data_parallel(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    activation, gradient = torch.ones(4), torch.ones(16)
    for _ in range(3):
        dist.all_reduce(activation, group=mesh.get_group("tensor"))
    dist.all_reduce(gradient, group=mesh.get_group("tensor" if rank.index == 3 else "data"))  # culprit


@mistake("group mismatch", culprits=(1,), ranks=4)
def one_layer_built_with_the_other_group(rank: Rank) -> None:
    """Its peers are in calls of the same line, and come to another one of theirs each: it shows at the end."""
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank.index // 2]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.index % 2]
    layers = [tensor, tensor, tensor]
    if rank.index == 1:
        layers[1] = data
    for group in layers:
        dist.all_reduce(torch.ones(3), group=group)  # culprit
    dist.all_reduce(torch.ones(3), group=data)


@mistake("group mismatch", culprits=(4,), ranks=6)
def its_row_for_its_column_in_the_fiftieth_step(rank: Rank) -> None:
    rows = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    columns = [dist.new_group([column, column + 3]) for column in range(3)]
    for step in range(52):
        dist.all_reduce(torch.ones(2), group=rows[rank.index // 3])
        across = rows[1] if step == 49 and rank.index == 4 else columns[rank.index % 3]
        dist.all_reduce(torch.ones(2), group=across)  # culprit


@mistake("group mismatch", culprits=(1,), ranks=3)
def a_group_from_before_the_restart(rank: Rank) -> None:
    kept = dist.new_group([0, 1, 2])
    dist.all_reduce(torch.ones(1), group=kept)
    fresh = dist.new_group([0, 1, 2])
    group = kept if rank.index == 1 else fresh
    gathered: list[Any] = [None] * 3
    dist.all_gather_object(gathered, rank.index, group=group)  # culprit


@mistake("group mismatch", ranks=2)
def of_two_one_takes_the_default(rank: Rank) -> None:
    both = dist.new_group([0, 1])
    for _ in range(4):
        dist.all_reduce(torch.ones(5), group=both)
    if rank.index == 0:
        dist.broadcast(torch.ones(5), src=0, group=both)  # culprit
    else:
        dist.broadcast(torch.ones(5), src=0)  # culprit
    dist.barrier()


@mistake("group mismatch", culprits=(2,), ranks=3)
def calls_on_a_group_it_is_not_in(rank: Rank) -> None:
    """torch warns and does nothing: the rank goes on with its own number for the sum."""
    pair = dist.new_group([0, 1])
    value = torch.ones(1)
    if rank.index < 2:
        dist.all_reduce(value, group=pair)
    else:
        dist.all_reduce(value, group=pair)  # culprit
    dist.barrier()


@mistake("group mismatch", culprits=(3,), ranks=4)
def across_where_the_others_go_along(rank: Rank) -> None:
    """Both calls of the one that is wrong are met by somebody's, or wait for another round."""
    along = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank.index // 2]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.index % 2]
    first, second = torch.ones(3), torch.ones(3)
    dist.all_reduce(first, group=across if rank.index == 3 else along)  # culprit
    dist.all_reduce(second, group=across)
    dist.barrier()


@mistake("group mismatch", culprits=(1,), ranks=3)
def one_of_two_threads_takes_the_others_group(rank: Rank) -> None:
    weights, metrics = dist.new_group(), dist.new_group()

    def average() -> None:
        for _ in range(4):
            dist.all_reduce(torch.ones(2), group=weights)

    def count() -> None:
        for step in range(4):
            mine = weights if rank.index == 1 and step == 3 else metrics
            dist.all_reduce(torch.ones(2), group=mine)  # culprit

    threads = [threading.Thread(target=each, daemon=True) for each in (average, count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@mistake("group mismatch", culprits=(1,), ranks=4)
def tensor_groups_from_the_data_axis(rank: Rank) -> None:
    """Each of its calls meets another line's, until all four wait in a circle."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    tensor = mesh.get_group("data" if rank.index == 1 else "tensor")  # culprit
    for step in range(4):
        activation = torch.full((3,), float(step))
        dist.all_reduce(activation, group=tensor)  # culprit
        dist.all_reduce(activation.clone(), group=mesh.get_group("data"))


@mistake("group mismatch", culprits=(4,), ranks=6)
def its_column_where_the_others_take_their_rows(rank: Rank) -> None:
    """What it calls there meets what its column calls next, and nobody is left for its own next call."""
    rows = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    columns = [dist.new_group([column, column + 3]) for column in range(3)]
    row, column = rows[rank.index // 3], columns[rank.index % 3]
    partial = torch.ones(8)
    dist.all_reduce(partial, group=column if rank.index == 4 else row)  # culprit
    dist.all_reduce(partial, group=column)


@mistake("group mismatch", ranks=4)
def two_ways_to_tie_the_weights(rank: Rank) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    weight = torch.ones(6, 2)
    for step in range(3):
        dist.all_reduce(weight, group=mesh.get_group("data"))
        if step == 1:
            axis = "data" if rank.index < 2 else "tensor"
            dist.all_reduce(weight, group=mesh.get_group(axis))  # culprit
        dist.barrier()


@mistake("group mismatch", culprits=(3,), ranks=6)
def a_head_that_speaks_to_all(rank: Rank) -> None:
    """Nodes sum for themselves, their heads with each other, and all get it from their head."""
    nodes = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    heads = dist.new_group([0, 3])
    head = rank.index // 3 * 3
    seen = torch.ones(2)
    dist.reduce(seen, head, group=nodes[rank.index // 3])
    if rank.index == 0:
        dist.all_reduce(seen, group=heads)
    elif rank.index == 3:
        dist.all_reduce(seen)  # culprit
    dist.broadcast(seen, head, group=nodes[rank.index // 3])


@mistake("group mismatch", culprits=(2,), ranks=4)
def counts_one_in_that_has_left(rank: Rank) -> None:
    if rank.index == 3:
        rank.store.set("left", "3")
        return
    rank.store.wait(["left"])
    members = [0, 1, 2, 3] if rank.index == 2 else [0, 1, 2]  # culprit
    group = dist.new_group(members, use_local_synchronization=True)  # culprit
    dist.all_reduce(torch.ones(2), group=group)
