"""Ranks meet at a store: in its barrier, or to make one of their own."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake

BARRIER = (2, 13)  # torch 2.6 has none; seen with 2.13


class HasStore(Protocol):
    """What a free port can be told through."""

    @property
    def index(self) -> int: ...

    @property
    def store(self) -> Any: ...


def free_port(rank: HasStore) -> int:
    if rank.index == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            rank.store.set("port", str(probe.getsockname()[1]))
    return int(rank.store.get("port"))


def joined(port: int, rank: Rank, size: int) -> Any:
    patience = timedelta(seconds=60)
    return dist.TCPStore("127.0.0.1", port, size, rank.index == 0, patience)  # culprit


@mistake("missing call", ranks=3, culprits=(1,), torch=BARRIER)
def an_epoch_without_its_barrier(rank: Rank) -> None:
    store: Any = rank.store
    loss = torch.ones(1)
    for epoch in range(12):
        dist.all_reduce(loss)
        if epoch == 7 and rank.index == 1:  # culprit
            continue
        store.barrier(f"epoch/{epoch}", 3)  # culprit


@mistake("missing call", ranks=4, culprits=(2,), torch=BARRIER)
def nothing_to_publish(rank: Rank) -> None:
    """Who has no shard goes on to the next thing that all do."""
    store: Any = rank.store
    shards = [] if rank.index == 2 else [f"shard-{rank.index}"]
    if shards:  # culprit
        rank.store.set(shards[0], "here")
        store.barrier("published", 4)  # culprit
    dist.barrier()  # culprit


@mistake("missing key", ranks=4, culprits=(3,), also=("call ordering", "missing call"), torch=BARRIER)
def a_barrier_of_its_own(rank: Rank) -> None:
    store: Any = rank.store
    phase = "eval" if rank.index == 3 else "evaluate"  # culprit
    for round_ in range(2):
        store.barrier(f"{phase}/{round_}", 4)  # culprit


@mistake("size mismatch", ranks=4, culprits=(0,), also=("missing call",), torch=BARRIER)
def counts_the_launcher_too(rank: Rank) -> None:
    store: Any = rank.store
    expected = rank.world_size + (rank.index == 0)  # culprit
    store.barrier("started", expected)  # culprit
    dist.barrier()


@mistake("extra call", ranks=3, culprits=(0,), torch=BARRIER)
def the_first_saves_once_more(rank: Rank) -> None:
    store: Any = rank.store
    for step in (0, 50):
        store.barrier(f"saved/{step}", 3)
    if rank.index == 0:
        store.barrier("saved/last", 3)  # culprit
    dist.barrier()


@mistake("missing call", ranks=3, culprits=(2,))
def does_not_join_the_store(rank: Rank) -> None:
    port = free_port(rank)
    if rank.index != 2:  # culprit
        joined(port, rank, 3).set(f"up/{rank.index}", "yes")  # culprit
    dist.barrier()  # culprit


@mistake("call ordering", ranks=3, culprits=(1,))
def meets_the_others_first(rank: Rank) -> None:
    port = free_port(rank)
    if rank.index == 1:
        dist.barrier()  # culprit
        joined(port, rank, 3)
    else:
        joined(port, rank, 3)
        dist.barrier()
