"""One mistake of each kind, as a program for however many ranks: how many ranks there are must not change the verdict.

The truth stands beside each, as in `programs`; who is guilty depends on how many there are.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from rankdrill.worlds.context import RankContext
from tests.catalogue.programs import Body, Program, Rank, Truth, marked_lines

__all__ = ["SCALED", "Scaled", "play_scaled"]

ROUNDS = 6  # enough for a habit


@dataclass(frozen=True, slots=True)
class Scaled:
    """A body for any number of ranks that makes a mistake of `kind`.

    `guilty` says who, of so many. Where `voted`, one against one is nobody's mistake, and `of_two` are kinds that are
    as right then. With less than `least` ranks it is none.
    """

    body: Body
    kind: str
    guilty: Callable[[int], tuple[int, ...]]
    voted: bool
    of_two: tuple[str, ...]
    least: int

    @property
    def name(self) -> str:
        return self.body.__name__

    def program(self, ranks: int) -> Program:
        """The program on `ranks` ranks, and what is wrong with it there."""
        guilty, also = self.guilty(ranks), self.of_two if ranks == 2 else ()
        blamed = not (self.voted and ranks == 2) and guilty != ()
        between = () if blamed else tuple(range(ranks))
        truth = Truth(self.kind, guilty if blamed else (), between, marked_lines(self.body), also)
        return Program(self.body, ranks, truth, (2, 6))


def odd(ranks: int) -> int:
    """Neither the first nor, where there are more than two, the last."""
    return ranks * 2 // 3


def _one(ranks: int) -> tuple[int, ...]:
    return (odd(ranks),)


def _all(ranks: int) -> tuple[int, ...]:
    return tuple(range(ranks))


def _half(ranks: int) -> tuple[int, ...]:
    return tuple(range(0, ranks, 2))


def _nobody(ranks: int) -> tuple[int, ...]:
    """All disagree, and nobody can say who is right."""
    return ()


SCALED: list[Scaled] = []


def scaled(
    kind: str,
    guilty: Callable[[int], tuple[int, ...]] = _one,
    *,
    voted: bool = True,
    of_two: tuple[str, ...] = (),
    least: int = 2,
) -> Callable[[Body], Body]:
    """The function below makes a mistake of `kind`; see `Scaled`."""

    def kept(body: Body) -> Body:
        SCALED.append(Scaled(body, kind, guilty, voted, of_two, least))
        return body

    return kept


def play_scaled(context: RankContext, name: str, directory: str) -> None:
    """On a rank: run the program of that name."""
    (program,) = (each for each in SCALED if each.name == name)
    store = PrefixStore(Path(directory).name, context.store)  # ranks that are kept keep their store
    program.body(Rank(context.index, context.world_size, context.group, store, Path(directory)))


def is_odd(rank: Rank) -> bool:
    return rank.index == odd(rank.world_size)


@scaled("call ordering")
def metrics_before_the_loss(rank: Rank) -> None:
    loss, hits = torch.ones(1), torch.ones(4)
    dist.all_reduce(loss)
    if is_odd(rank):
        dist.broadcast(hits, 0)  # culprit
        dist.all_reduce(loss)  # culprit
    else:
        dist.all_reduce(loss)  # culprit
        dist.broadcast(hits, 0)  # culprit


@scaled("missing call", of_two=("extra call",))
def one_batch_less(rank: Rank) -> None:
    for _ in range(ROUNDS - is_odd(rank)):  # culprit
        dist.all_reduce(torch.ones(3))  # culprit
    dist.barrier()  # culprit


@scaled("extra call", of_two=("missing call",))
def one_batch_more(rank: Rank) -> None:
    for _ in range(ROUNDS + is_odd(rank)):  # culprit
        dist.all_reduce(torch.ones(3))  # culprit
    dist.barrier()  # culprit


@scaled("operator mismatch")
def max_for_sum(rank: Rank) -> None:
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX if is_odd(rank) else dist.ReduceOp.SUM)  # culprit


@scaled("root mismatch")
def broadcast_of_its_own(rank: Rank) -> None:
    dist.broadcast(torch.ones(4), src=rank.index if is_odd(rank) else 0)  # culprit


@scaled("datatype mismatch")
def another_precision(rank: Rank) -> None:
    dtype = torch.int32 if is_odd(rank) else torch.float32
    parts = [torch.zeros(2, dtype=dtype) for _ in range(rank.world_size)]
    dist.all_gather(parts, torch.ones(2, dtype=dtype))  # culprit


@scaled("size mismatch")
def one_row_more(rank: Rank) -> None:
    dist.all_reduce(torch.ones(5 if is_odd(rank) else 4))  # culprit


@scaled("group mismatch")
def the_group_for_metrics(rank: Rank) -> None:
    for_metrics = dist.new_group(list(range(rank.world_size)))
    dist.all_reduce(torch.ones(2), group=for_metrics if is_odd(rank) else None)  # culprit
    dist.barrier()


@scaled("deadlock", _nobody)
def a_ring_in_which_all_receive_first(rank: Rank) -> None:
    block = torch.ones(4)
    dist.recv(block, src=(rank.index - 1) % rank.world_size)  # culprit
    dist.send(block, dst=(rank.index + 1) % rank.world_size)


@scaled("deadlock")
def two_groups_the_other_way_round(rank: Rank) -> None:
    everybody = list(range(rank.world_size))
    groups = [dist.new_group(everybody), dist.new_group(everybody)]
    for step in range(ROUNDS):
        turned = step == ROUNDS - 2 and is_odd(rank)
        for group in reversed(groups) if turned else groups:
            dist.all_reduce(torch.ones(2), group=group)  # culprit


@scaled("unmatched message", voted=False)
def one_of_the_ring_does_not_send(rank: Rank) -> None:
    work = None
    if not is_odd(rank):  # culprit
        work = dist.isend(torch.ones(4), dst=(rank.index + 1) % rank.world_size)  # culprit
    dist.recv(torch.zeros(4), src=(rank.index - 1) % rank.world_size)  # culprit
    if work is not None:
        work.wait()


@scaled("message race", voted=False, least=3)
def first_come_is_taken_for_the_first(rank: Rank) -> None:
    rows = torch.zeros(rank.world_size - 1, 2)
    if is_odd(rank):
        for row in rows:
            dist.recv(row)  # culprit
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=odd(rank.world_size))


@scaled("request leak", voted=False)
def one_rank_does_not_wait(rank: Rank) -> None:
    work = dist.all_reduce(torch.ones(64), async_op=True)  # culprit
    if not is_odd(rank):
        work.wait()
    dist.barrier()


@scaled("leaked group", _all, voted=False)
def a_group_for_each_evaluation(rank: Rank) -> None:
    half = _half(rank.world_size)
    for _ in range(ROUNDS):
        group = dist.new_group(half)  # culprit
        if rank.index in half:
            dist.all_reduce(torch.ones(1), group=group)


@scaled("input hazard", voted=False)
def zeroed_before_it_is_reduced(rank: Rank) -> None:
    gradient = torch.ones(256)
    work = dist.all_reduce(gradient, async_op=True)
    if is_odd(rank):
        gradient.zero_()  # culprit
    work.wait()


@scaled("memory layout", voted=False)
def one_rank_reads_into_a_column(rank: Rank) -> None:
    rates = torch.zeros(5, 3)[:, 1] if is_odd(rank) else torch.ones(5)
    dist.broadcast(rates, src=0)  # culprit


@scaled("lost rank", voted=False)
def a_key_that_its_batch_has_not(rank: Rank) -> None:
    batch = {"image": 1} if is_odd(rank) else {"image": 1, "label": 3}
    dist.all_reduce(torch.ones(1))
    label = batch["label"]  # culprit
    dist.all_reduce(torch.tensor([label]))


@scaled("missing key")
def one_does_not_register(rank: Rank) -> None:
    if not is_odd(rank):  # culprit
        rank.store.set(f"host/{rank.index}", "localhost")  # culprit
    hosts = [rank.store.get(f"host/{other}") for other in range(rank.world_size)]  # culprit
    assert len(hosts) == rank.world_size


@scaled("lost update", _all, voted=False)
def joins_a_roster(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("roster", "")
    dist.barrier()
    roster = rank.store.get("roster").decode()  # culprit
    rank.store.set("roster", f"{roster} {rank.index}")  # culprit
    dist.barrier()


@scaled("stuck rank", voted=False)
def a_queue_that_nobody_fills(rank: Rank) -> None:
    ready: queue.Queue[Any] = queue.Queue()
    if not is_odd(rank):
        ready.put(1)
    first = ready.get()  # culprit
    dist.all_reduce(torch.tensor([first]))
