"""Leaked group: made again and again, and never destroyed."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("leaked group", culprits=(0, 1), ranks=2)
def a_group_for_each_step(rank: Rank) -> None:
    for _ in range(12):
        group = dist.new_group([0, 1])  # culprit
        dist.all_reduce(torch.ones(2), group=group)


@mistake("leaked group", culprits=(0, 1, 2, 3), ranks=4)
def pairs_for_each_evaluation(rank: Rank) -> None:
    for _ in range(6):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]  # culprit
        dist.all_reduce(torch.ones(1), group=pairs[rank.index // 2])
    dist.barrier()


@mistake("leaked group", culprits=(0, 1), ranks=2)
def two_groups_for_each_epoch(rank: Rank) -> None:
    for _ in range(8):
        data, alone = dist.new_group([0, 1]), dist.new_subgroups(1)[0]  # culprit
        dist.all_reduce(torch.ones(4), group=data)
        dist.barrier(group=alone)


@mistake("leaked group", culprits=(2,), ranks=3)
def kept_by_the_one_that_fails_first(rank: Rank) -> None:
    for attempt in range(8):
        group = dist.new_group([0, 1, 2])  # culprit
        try:
            dist.all_reduce(torch.ones(1), group=group)
            if rank.index == 2 and attempt < 7:
                raise TimeoutError("storage is slow")
            dist.destroy_process_group(group)
        except TimeoutError:
            continue
    dist.barrier()


@mistake("leaked group", culprits=(0, 1, 2), ranks=3)
def who_is_on_duty_changes(rank: Rank) -> None:
    """One line, and three groups of two in turn."""
    for turn in range(9):
        pair = sorted({turn % 3, (turn + 2) % 3})
        group = dist.new_group(pair)  # culprit
        if rank.index in pair:
            dist.all_reduce(torch.ones(3), group=group)


@mistake("leaked group", culprits=(0, 1, 2, 3, 4, 5), ranks=6)
def halves_for_each_evaluation(rank: Rank) -> None:
    for _ in range(6):
        half, _ = dist.new_subgroups(3)  # culprit
        dist.all_reduce(torch.ones(1), group=half)
        dist.barrier()


@mistake("leaked group", culprits=(1,), ranks=3)
def keeps_them_from_the_fiftieth_step_on(rank: Rank) -> None:
    for step in range(60):
        group = dist.new_group([0, 1, 2])  # culprit
        dist.all_reduce(torch.ones(2), group=group)
        if step < 49 or rank.index != 1:
            dist.destroy_process_group(group)


@mistake("leaked group", culprits=(0, 1, 2, 3), ranks=4)
def objects_over_a_group_of_their_own(rank: Rank) -> None:
    def told_by_all(settings: dict[str, float]) -> list[dict[str, float]]:
        group = dist.new_group(backend="gloo")  # culprit
        told: list[dict[str, float]] = [{} for _ in range(rank.world_size)]
        dist.all_gather_object(told, settings, group=group)
        return told

    rates = {0.1 / (1 + epoch) for epoch in range(8)}
    assert all(len(told_by_all({"rate": rate})) == 4 for rate in sorted(rates))
