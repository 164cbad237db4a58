"""Ranks that meet at a store as they should, also where not all of them do, or not at once."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.mistakes.meetings import BARRIER, free_port
from tests.catalogue.programs import Rank, correct


@correct(ranks=4, torch=BARRIER)
def those_who_write_meet(rank: Rank) -> None:
    store: Any = rank.store
    for step in range(5):
        if rank.index in (1, 3):
            store.barrier(f"written/{step}", 2)
        dist.all_reduce(torch.ones(2))


@correct(ranks=3, torch=BARRIER)
def one_is_late_each_time(rank: Rank) -> None:
    store: Any = rank.store
    for step in range(3):
        if rank.index == step:
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                torch.ones(64, 64) @ torch.ones(64, 64)
        store.barrier(f"step/{step}", 3)


@correct(ranks=3, torch=BARRIER)
def a_name_that_was_used_before(rank: Rank) -> None:
    """It lets through at once whoever comes again, as many as they are."""
    store: Any = rank.store
    store.barrier("started", 3)
    if rank.index != 1:
        store.barrier("started", 3)
    dist.barrier()


@correct(ranks=3)
def a_store_beside_the_groups(rank: Rank) -> None:
    """Its server waits for all, and these come when they have the time."""
    port = free_port(rank)
    if rank.index == 2:
        time.sleep(0.3)
    store = dist.TCPStore("127.0.0.1", port, 3, rank.index == 0, timedelta(seconds=60))
    store.add("ready", 1)
    dist.barrier()
    assert int(store.get("ready")) == 3
    dist.barrier()


@correct(ranks=3)
def the_server_waits_for_nobody(rank: Rank) -> None:
    """One of the others has no use for it."""
    port = free_port(rank)
    if rank.index < 2:
        first = rank.index == 0
        store = dist.TCPStore("127.0.0.1", port, 3, first, wait_for_workers=False)
        store.set(f"seen/{rank.index}", "yes")
        store.wait(["seen/0", "seen/1"])
    dist.barrier()
