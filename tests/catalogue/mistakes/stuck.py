"""Stuck rank: the others wait for one that waits for nobody, or for something that is no rank."""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.catalogue.programs import Rank, mistake


@mistake("stuck rank", culprits=(1,), ranks=3)
def never_converges(rank: Rank) -> None:
    error, rate = 1.0, 1.0 if rank.index == 1 else 0.5
    while error > 1e-9:  # culprit
        error *= rate  # culprit
    dist.all_reduce(torch.tensor([error]))


@mistake("stuck rank", culprits=(0,), ranks=2)
def a_queue_that_nobody_fills(rank: Rank) -> None:
    ready: queue.Queue[int] = queue.Queue()
    if rank.index == 1:
        ready.put(1)
    first = ready.get()  # culprit
    dist.all_reduce(torch.tensor([first]))


@mistake("stuck rank", culprits=(1,), ranks=3)
def a_file_that_never_comes(rank: Rank) -> None:
    done = os.path.join(tempfile.gettempdir(), f"no-such-file-{os.getpid()}")
    if rank.index == 1:
        while not os.path.exists(done):  # culprit
            time.sleep(0.05)  # culprit
    dist.barrier()


@mistake("stuck rank", culprits=(0,), ranks=4)
def waits_for_a_command(rank: Rank) -> None:
    dist.all_reduce(torch.ones(3))
    if rank.index == 0:
        subprocess.run(["sleep", "30"], check=True)  # culprit
    dist.broadcast(torch.ones(3), src=0)


@mistake("stuck rank", culprits=(3,), ranks=4)
def stopped_by_a_signal(rank: Rank) -> None:
    for step in range(30):
        dist.all_reduce(torch.ones(2))
        if step == 20 and rank.index == 3:
            os.kill(os.getpid(), signal.SIGSTOP)  # culprit


@mistake("stuck rank", culprits=(1,), ranks=2)
def a_pipe_whose_other_end_is_silent(rank: Rank) -> None:
    reading, writing = os.pipe()
    try:
        if rank.index == 1:
            os.read(reading, 1)  # culprit
    finally:
        os.close(reading)
        os.close(writing)
    dist.barrier()


@mistake("stuck rank", culprits=(2,), ranks=3)
def locks_its_own_file_twice(rank: Rank) -> None:
    with tempfile.TemporaryFile() as first, open(f"/proc/self/fd/{first.fileno()}") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        if rank.index == 2:
            fcntl.flock(second, fcntl.LOCK_EX)  # culprit
    dist.barrier()


@mistake("stuck rank", culprits=(4,), ranks=6)
def joins_a_thread_that_never_ends(rank: Rank) -> None:
    finished = threading.Event()
    loader = threading.Thread(target=finished.wait, args=(60,), daemon=True)
    loader.start()
    if rank.index != 4:
        finished.set()
    loader.join()  # culprit
    dist.barrier()


@mistake("stuck rank", culprits=(1,), ranks=2)
def has_no_fiftieth_batch(rank: Rank) -> None:
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    for _ in range(49 if rank.index == 1 else 55):
        batches.put(torch.ones(2, 4))
    model = DistributedDataParallel(nn.Linear(4, 2))
    for _ in range(55):
        model(batches.get()).sum().backward()  # culprit


@mistake("stuck rank", culprits=(4,), ranks=6)
def halves_its_step_for_ever(rank: Rank) -> None:
    half = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])][rank.index // 3]
    for _ in range(5):
        loss = torch.ones(1)
        dist.all_reduce(loss, group=half)
        rate, gained = 1.0, 0.0 if rank.index == 4 else 0.1
        while gained <= 0:  # culprit
            rate, gained = rate / 2, gained * rate  # culprit
    dist.barrier()


@mistake("stuck rank", culprits=(2,), ranks=4)
def waits_for_a_better_time_in_the_last_turn(rank: Rank) -> None:
    turns = 30
    for turn in range(turns):
        dist.all_reduce(torch.ones(2))
        if turn == turns - 1 and rank.index == 2:
            time.sleep(60)  # culprit
    dist.barrier()
