"""Lost rank: one that raised, left or was killed before the others had what they need of it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("lost rank", culprits=(2,), ranks=4)
def a_key_that_its_batch_has_not(rank: Rank) -> None:
    batch = {"image": 1} if rank.index == 2 else {"image": 1, "label": 3}
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    label = batch["label"]  # culprit
    dist.all_reduce(torch.tensor([label]))


@mistake("lost rank", culprits=(1,), ranks=3)
def ends_in_the_first_step(rank: Rank) -> None:
    for step in range(20):
        if step == 0 and rank.index == 1:
            sys.exit("no GPU")  # culprit
        dist.all_reduce(torch.ones(4))


@mistake("lost rank", culprits=(0,), ranks=2)
def leaves_without_a_word(rank: Rank) -> None:
    dist.barrier()
    if rank.index == 0:
        os._exit(0)  # culprit
    dist.barrier()


@mistake("lost rank", culprits=(3,), ranks=4)
def killed_in_the_fiftieth_step(rank: Rank) -> None:
    for step in range(60):
        if step == 49 and rank.index == 3:
            os.kill(os.getpid(), signal.SIGKILL)  # culprit
        dist.all_reduce(torch.ones(8))


@mistake("lost rank", culprits=(1,), ranks=3, also=("missing call",))
def returns_early(rank: Rank) -> None:
    resumed = rank.index == 1
    if resumed:
        return  # culprit
    for _ in range(4):
        dist.all_reduce(torch.ones(2))  # culprit


@mistake("lost rank", culprits=(4,), ranks=6)
def a_check_fails_in_the_last_step(rank: Rank) -> None:
    group, steps = dist.new_group([2, 3, 4]), 30
    for step in range(steps):
        loss = -1.0 if step == steps - 1 and rank.index == 4 else 1.0
        if rank.index in (2, 3, 4):
            assert loss > 0, "negative loss"  # culprit
            dist.all_reduce(torch.tensor([loss]), group=group)
    dist.barrier()


@mistake("lost rank", culprits=(1,), ranks=3)
def cannot_be_pickled(rank: Rank) -> None:
    metric: Any = (lambda: 0.5) if rank.index == 1 else 0.5
    everyones: list[Any] = [None] * 3
    dist.all_gather_object(everyones, metric)  # culprit


@mistake("lost rank", culprits=(1,), ranks=2)
def reads_at_address_zero(rank: Rank) -> None:
    dist.all_reduce(torch.ones(2))
    if rank.index == 1:
        ctypes.string_at(0)  # culprit
    dist.barrier()


@mistake("lost rank", culprits=(0,), ranks=4)
def has_not_the_memory(rank: Rank) -> None:
    rows = 1 << 50 if rank.index == 0 else 1 << 5
    gathered = torch.zeros(rows)  # culprit
    dist.broadcast(gathered[:4], src=1)


@mistake("lost rank", culprits=(2,), ranks=3)
def runs_out_of_data(rank: Rank) -> None:
    batches = iter([torch.ones(2)] * (5 if rank.index == 2 else 6))
    for _ in range(6):
        dist.all_reduce(next(batches))  # culprit


@mistake("lost rank", culprits=(0,), ranks=3)
def a_checkpoint_that_is_not_there(rank: Rank) -> None:
    settings: list[Any] = [None]
    if rank.index == 0:
        settings = [json.loads(Path("no/such/run/settings.json").read_text())]  # culprit
    dist.broadcast_object_list(settings, src=0)


@mistake("lost rank", culprits=(5,), ranks=6)
def aborts_beside_a_message(rank: Rank) -> None:
    partner = rank.index ^ 1
    if rank.index == 5:
        os.abort()  # culprit
    if rank.index % 2:
        dist.send(torch.ones(4), dst=partner)
    else:
        dist.recv(torch.zeros(4), src=partner)
