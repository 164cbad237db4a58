"""Datatype mismatch: the same bytes, or as many elements, taken for something else."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("datatype mismatch", culprits=(1,), ranks=4)
def half_for_single(rank: Rank) -> None:
    gradient = torch.ones(8, dtype=torch.float16 if rank.index == 1 else torch.float32)
    dist.all_reduce(gradient)  # culprit


@mistake("datatype mismatch", culprits=(2,), ranks=3)
def labels_of_another_width(rank: Rank) -> None:
    labels = torch.tensor([1, 2, 3])
    if rank.index == 2:
        labels = labels.int()
    gathered = [torch.empty_like(labels) for _ in range(3)]
    dist.all_gather(gathered, labels)  # culprit


@mistake("datatype mismatch", ranks=2)
def what_numpy_makes_of_a_list(rank: Rank) -> None:
    weights = torch.from_numpy(np.array([0.1, 0.2])) if rank.index == 0 else torch.zeros(2)
    dist.broadcast(weights, src=0)  # culprit


@mistake("datatype mismatch", culprits=(3,), ranks=4)
def another_precision_after_an_overflow(rank: Rank) -> None:
    dtype = torch.bfloat16
    for step in range(60):
        if step == 49 and rank.index == 3:
            dtype = torch.float32
        dist.all_reduce(torch.ones(6, dtype=dtype))  # culprit
        dist.broadcast(torch.ones(2), src=0)


@mistake("datatype mismatch", culprits=(0,), ranks=3)
def as_many_bytes(rank: Rank) -> None:
    steps = 12
    for step in range(steps):
        last = step == steps - 1 and rank.index == 0
        dist.all_reduce(torch.ones(4, dtype=torch.int32 if last else torch.float32))  # culprit


@mistake("datatype mismatch", culprits=(1,), ranks=3)
def exchanged_in_another_type(rank: Rank) -> None:
    dtype = torch.float32 if rank.index == 1 else torch.int32
    received, sent = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    dist.all_to_all_single(received, sent)  # culprit


@mistake("datatype mismatch", ranks=2)
def sent_as_one_and_received_as_another(rank: Rank) -> None:
    if rank.index == 0:
        dist.send(torch.ones(4, dtype=torch.float64), dst=1)  # culprit
    else:
        dist.recv(torch.zeros(8), src=0)  # culprit


@mistake("datatype mismatch", culprits=(4,), ranks=6)
def in_a_sub_group(rank: Rank) -> None:
    group = dist.new_group([1, 3, 4])
    dist.barrier()
    count = torch.tensor([rank.index])
    if rank.index == 4:
        dist.reduce(count / 1, dst=1, group=group)  # culprit
    elif rank.index in (1, 3):
        dist.reduce(count, dst=1, group=group)


@mistake("datatype mismatch", culprits=(2,), ranks=3)
def functional_of_a_mask(rank: Rank) -> None:
    mask = torch.ones(4, dtype=torch.uint8 if rank.index == 2 else torch.int64)
    everyones = funcol.all_gather_tensor(mask, 0, rank.group)  # culprit
    assert everyones.numel() == 12


@mistake("datatype mismatch", culprits=(0,), ranks=4)
def a_count_that_became_a_float(rank: Rank) -> None:
    """Division makes floats of integers; the others have had nothing to divide."""
    seen = torch.tensor([12])
    dist.all_reduce(seen)
    if rank.index == 0:
        seen = seen / 4
    parts = [torch.zeros_like(seen) for _ in range(4)] if rank.index == 0 else None
    dist.gather(seen, parts, dst=0)  # culprit


@mistake("datatype mismatch", culprits=(2,), ranks=6)
def half_precision_in_one_of_three_pairs(rank: Rank) -> None:
    """Of two nobody is in the majority; the other pairs show what it is to be."""
    pairs = [dist.new_group([first, first + 3]) for first in (0, 1, 2)]
    mine = pairs[rank.index % 3]
    dist.all_reduce(torch.ones(4), group=mine)
    dist.barrier()
    dist.all_reduce(torch.ones(4, dtype=torch.bfloat16 if rank.index == 2 else torch.float32), group=mine)  # culprit
    dist.barrier()
