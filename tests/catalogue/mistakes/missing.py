"""Missing call: a rank goes past a collective that the others make."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("missing call", culprits=(2,), ranks=4)
def validation_on_some(rank: Rank) -> None:
    loss, score = torch.ones(1), torch.ones(3)
    for epoch in range(6):
        dist.all_reduce(loss)  # culprit
        if epoch == 3 and rank.index != 2:  # culprit
            dist.broadcast(score, 0)  # culprit


@mistake("missing call", culprits=(1,), ranks=3)
def leaves_the_loop_on_a_nan(rank: Rank) -> None:
    for step in range(60):
        loss = torch.tensor([math.nan if step == 49 and rank.index == 1 else 1.0])
        if loss.isnan().item():
            break  # culprit
        dist.all_reduce(loss)  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(3,), ranks=6)
def an_error_is_swallowed(rank: Rank) -> None:
    sizes = {"train": 4} if rank.index == 3 else {"train": 4, "valid": 2}
    try:
        count = torch.tensor([sizes["train"] + sizes["valid"]])
        dist.all_reduce(count)  # culprit
    except KeyError:
        pass  # culprit
    dist.broadcast(torch.ones(7), 0)  # culprit


@mistake("missing call", culprits=(1,), ranks=3)
def skips_the_first_step(rank: Rank) -> None:
    """From there on it is one call behind, and nothing tells: all calls are alike."""
    gradient = torch.ones(10)
    for step in range(20):
        if step == 0 and rank.index == 1:
            continue  # culprit
        dist.all_reduce(gradient)  # culprit


@mistake("missing call", culprits=(3,), ranks=4)
def one_batch_less(rank: Rank) -> None:
    samples = list(range(rank.index, 99, 4))
    batches = [samples[start : start + 5] for start in range(0, len(samples), 5)]
    for batch in batches[: 4 if rank.index == 3 else None]:  # culprit
        dist.all_reduce(torch.tensor([len(batch)]))  # culprit


@mistake("missing call", culprits=(1,), ranks=4)
def a_member_that_thinks_it_is_none(rank: Rank) -> None:
    members = [0, 1, 2]
    group = dist.new_group(members)
    if rank.index < 1 or rank.index == members[-1]:  # culprit
        dist.all_reduce(torch.ones(4), group=group)  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(0,), ranks=3)
def the_root_does_not_broadcast(rank: Rank) -> None:
    weights = torch.full((4,), float(rank.index))
    if rank.index != 0:  # culprit
        dist.broadcast(weights, 0)  # culprit
    dist.all_reduce(weights)  # culprit


@mistake("missing call", culprits=(2,), ranks=4)
def gathers_only_if_it_has_something(rank: Rank) -> None:
    found = [] if rank.index == 2 else [f"sample {rank.index}"]
    everyones: list[Any] = [None] * rank.world_size
    if found:  # culprit
        dist.all_gather_object(everyones, found)  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(3,), ranks=4)
def a_group_made_by_its_members(rank: Rank) -> None:
    if rank.index < 3:  # culprit
        group = dist.new_group([0, 1, 2])  # culprit
        dist.all_reduce(torch.ones(1), group=group)
    everybody = dist.new_group([0, 1, 2, 3])  # culprit
    dist.all_reduce(torch.ones(1), group=everybody)  # culprit


@mistake("missing call", culprits=(1,), ranks=3)
def does_not_come_to_a_monitored_barrier(rank: Rank) -> None:
    dist.all_reduce(torch.ones(2))
    if rank.index != 1:  # culprit
        dist.monitored_barrier(timeout=timedelta(seconds=2))  # culprit
    dist.broadcast(torch.ones(2), 0)  # culprit


@mistake("missing call", culprits=(0,), ranks=2, also=("extra call",))
def one_of_two_synchronizes(rank: Rank) -> None:
    for _ in range(5):
        dist.all_reduce(torch.ones(2))  # culprit
    if rank.index == 0:  # culprit
        dist.barrier()  # culprit


@mistake("missing call", culprits=(4,), ranks=6)
def counts_wrong_in_one_of_two_groups(rank: Rank) -> None:
    low, high = dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])
    group = low if rank.index < 3 else high
    for _ in range(24 if rank.index == 4 else 25):  # culprit
        dist.all_reduce(torch.ones(3), group=group)  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(0,), ranks=4)
def cached_on_one_rank(rank: Rank) -> None:
    cache = {"vocabulary": ["a", "b"]} if rank.index == 0 else {}
    for word in ("vocabulary", "lengths"):
        if word not in cache:  # culprit
            box = [word]
            dist.broadcast_object_list(box, src=1)  # culprit
            cache[word] = box
    dist.all_reduce(torch.ones(len(cache)))  # culprit


@mistake("missing call", culprits=(2,), ranks=3)
def asynchronous_on_all_but_one(rank: Rank) -> None:
    buckets = [torch.ones(size) for size in (8, 8, 3)]
    buckets = buckets[:2] if rank.index == 2 else buckets  # culprit
    for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:  # culprit
        work.wait()  # culprit
    dist.barrier()  # culprit


@mistake("missing call", culprits=(5,), ranks=6)
def one_of_a_pair_is_in_a_hurry(rank: Rank) -> None:
    """Of two nobody is in the majority; the other pairs show how many there are to be."""
    pairs = [dist.new_group([first, first + 1]) for first in (0, 2, 4)]
    mine = pairs[rank.index // 2]
    for layer in range(3):
        if layer < 2 or rank.index != 5:
            dist.all_reduce(torch.ones(4), group=mine)  # culprit
    dist.barrier()


@mistake("missing call", culprits=(3,), ranks=4)
def one_layer_of_two_groups_is_skipped(rank: Rank) -> None:
    """One line serves both groups in turn: its peers in one are in another group by then, and did nothing wrong."""
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank.index // 2]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.index % 2]
    for layer, group in enumerate((tensor, data, tensor, data, tensor)):
        if layer != 1 or rank.index != 3:  # culprit
            dist.all_reduce(torch.ones(3), group=group)  # culprit


@mistake("missing call", culprits=(0,), ranks=4)
def logged_by_all_but_the_first(rank: Rank) -> None:
    """It meets the others' logging in the next step's gradients, in a call of the same name and another size."""

    def log(value: torch.Tensor) -> None:
        if rank.index != 0:  # culprit
            dist.all_reduce(value)  # culprit

    def step(gradient: torch.Tensor) -> None:
        dist.all_reduce(gradient)  # culprit
        log(gradient.sum())  # culprit

    for size in range(3, 6):
        step(torch.ones(size))


class SumOfGradients(torch.autograd.Function):
    """What comes back is summed over the ranks."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        summed = gradient.contiguous()
        dist.all_reduce(summed)  # culprit
        return summed


@mistake("missing call", culprits=(1,), ranks=3)
def nothing_to_send_back(rank: Rank) -> None:
    """Its first layer is frozen, so that the pass ends before it comes to the sum."""
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
    first.requires_grad_(rank.index != 1)  # culprit
    loss = second(SumOfGradients.apply(first(torch.ones(4, 3)))).sum()
    torch.autograd.backward(loss)  # culprit
    assert second.weight.grad is not None
    dist.all_reduce(second.weight.grad)  # culprit


@mistake("missing call", culprits=(0, 3), ranks=4)
def a_group_that_its_members_alone_make(rank: Rank) -> None:
    """Of as many as leave it out; all have to make it."""
    if 0 < rank.index < 3:  # culprit
        inner = dist.new_group([1, 2])  # culprit
        dist.all_reduce(torch.ones(2), group=inner)
    outer = dist.new_group([0, 1, 2, 3])  # culprit
    dist.all_reduce(torch.ones(1), group=outer)


@mistake("missing call", culprits=(2,), ranks=6)
def a_row_without_one_of_its_three(rank: Rank) -> None:
    """Who waits for the other two in their columns did nothing wrong, though half of its column waits for it."""
    rows = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    columns = [dist.new_group([column, column + 3]) for column in range(3)]
    energy = torch.ones(4)
    for sweep in range(3):
        if rank.index != 2 or sweep != 1:  # culprit
            dist.all_reduce(energy, group=rows[rank.index // 3])  # culprit
        dist.all_reduce(energy, group=columns[rank.index % 3])  # culprit


@mistake("missing call", culprits=(3,), ranks=4)
def a_panel_that_one_does_not_hand_on(rank: Rank) -> None:
    """Roots take turns, so its next call differs from its peer's in the root: what it called in its row tells why."""
    row = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank.index // 2]
    column = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.index % 2]
    for step in range(4):
        pivot, panel = torch.ones(1), torch.ones(5)
        dist.all_reduce(pivot, op=dist.ReduceOp.MAX, group=row)
        if rank.index == 3 and step == 1:
            continue  # culprit
        root = dist.get_process_group_ranks(column)[step % 2]
        dist.broadcast(panel, src=root, group=column)  # culprit


@mistake("missing call", culprits=(0, 1), ranks=4, also=("group mismatch",))
def the_pair_alone_makes_its_group(rank: Rank) -> None:
    """All have to make it, whoever is in it."""
    total = torch.ones(1)
    if rank.index > 1:  # culprit
        pair = dist.new_group([2, 3])  # culprit
        dist.all_reduce(total, group=pair)
    dist.all_reduce(total)  # culprit
