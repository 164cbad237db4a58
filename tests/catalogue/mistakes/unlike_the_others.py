"""One that does what all do a little earlier, later, or less often than all others that come to its line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, mistake


@mistake("call ordering", culprits=(3,), also=("deadlock",), ranks=4)
def its_stages_are_turned_round(rank: Rank) -> None:
    """Two by two they hand a border over, and then all take the mean."""
    cells, border = torch.full((6,), float(rank.index)), torch.zeros(1)

    def borders() -> None:
        if rank.index % 2:
            dist.send(cells[:1].clone(), rank.index - 1)  # culprit
        else:
            dist.recv(border, rank.index + 1)

    def mean() -> None:
        dist.all_reduce(cells)  # culprit

    stages = [mean, borders] if rank.index == 3 else [borders, mean]  # culprit
    for stage in stages:
        stage()  # culprit


class Outbox:
    """Holds letters back until there are two of them."""

    def __init__(self, to: int) -> None:
        self.to, self.letters = to, list[torch.Tensor]()

    def put(self, letter: torch.Tensor) -> None:
        self.letters.append(letter)
        if len(self.letters) == 2:
            self.empty()

    def empty(self) -> None:
        if self.letters:
            dist.send(torch.cat([*self.letters, torch.zeros(2)])[:4], self.to)  # culprit
            self.letters.clear()


@mistake("call ordering", culprits=(1,), also=("deadlock", "unmatched message"), ranks=4)
def the_rest_goes_out_behind_the_barrier(rank: Rank) -> None:
    written = {0: 4, 1: 3, 3: 4}
    if rank.index == 2:
        received = torch.zeros(4)
        for writer in written:
            for _ in range(2):
                dist.recv(received, writer)
        dist.barrier()
        return
    outbox = Outbox(to=2)
    for number in range(written[rank.index]):
        outbox.put(torch.full((2,), float(number)))
    dist.barrier()  # culprit
    outbox.empty()  # culprit


@mistake("call ordering", culprits=(1,), also=("deadlock",), ranks=4)
def takes_the_plan_before_the_ballot(rank: Rank) -> None:
    plan = torch.zeros(3)

    def hand_over() -> None:
        if rank.index == 3:
            dist.send(plan + 1, 1)
        elif rank.index == 1:
            dist.recv(plan, 3)  # culprit

    def ballot() -> None:
        dist.all_reduce(torch.ones(1), dist.ReduceOp.MIN)

    impatient = rank.index == 1  # culprit
    for _ in range(2):
        if impatient:  # culprit
            hand_over()  # culprit
        ballot()
        if not impatient:
            hand_over()


@mistake("unmatched message", culprits=(3,), ranks=4)
def a_worker_is_off_after_two(rank: Rank) -> None:
    done, most = -1, {1: 9, 2: 9, 3: 2}  # culprit
    if rank.index:
        task = torch.zeros(1, dtype=torch.int64)
        for _ in range(most[rank.index]):  # culprit
            dist.recv(task, 0)  # culprit
            if task.item() == done:
                return
        return  # culprit
    tasks = iter(range(9))
    for three in zip(tasks, tasks, tasks, strict=True):
        for worker, number in enumerate(three, 1):
            dist.send(torch.tensor([number]), worker)
    for worker in (1, 2, 3):
        dist.send(torch.tensor([done]), worker)


@mistake("unmatched message", culprits=(1,), ranks=4)
def a_gradient_by_the_edge_before(rank: Rank) -> None:
    """Tags count the messages of an edge, forth and back, one edge after the other."""
    turns, last = 3, rank.world_size - 1
    back = {0: 0, 1: 0, 2: 2}  # culprit
    value = torch.ones(4)
    for turn in range(turns):
        if rank.index > 0:
            dist.recv(value, rank.index - 1, tag=20 * (rank.index - 1) + 2 * turn)
        if rank.index < last:
            dist.send(value, rank.index + 1, tag=20 * rank.index + 2 * turn)
    for turn in range(turns):
        if rank.index < last:
            dist.recv(value, rank.index + 1, tag=20 * back[rank.index] + 2 * turn + 1)  # culprit
        if rank.index > 0:
            dist.send(value, rank.index - 1, tag=20 * (rank.index - 1) + 2 * turn + 1)


@mistake("missing key", culprits=(3,), ranks=4)
def asks_with_a_dash(rank: Rank) -> None:
    parts = {1: "old_news", 2: "new_books", 3: "new-web"}  # culprit
    if rank.index == 0:
        for part in ("old_news", "new_books", "new_web"):
            rank.store.set(f"rows/{part}", "7")
        return
    rank.store.wait([f"rows/{parts[rank.index]}"], timedelta(seconds=2))  # culprit


@contextmanager
def heartbeat(rank: Rank) -> Iterator[None]:
    rank.store.set(f"up/{rank.index}/0", "yes")
    yield
    rank.store.set(f"up/{rank.index}/1", "yes")


@mistake("missing key", culprits=(2,), ranks=3)
def waits_for_one_rank_too_many(rank: Rank) -> None:
    with heartbeat(rank):
        pass
    if rank.index == 2:
        names = [f"up/{each}/1" for each in range(1, rank.world_size + 1)]  # culprit
        rank.store.wait(names, timedelta(seconds=1))  # culprit


@mistake("message race", culprits=(2,), ranks=4)
def results_under_the_names_of_a_list(rank: Rank) -> None:
    fields = {0: "wind", 1: "rain", 3: "sun"}
    reading = torch.zeros(2)
    if rank.index == 2:
        forecast: dict[str, Any] = {}
        for station, field in fields.items():
            dist.recv(reading)  # culprit
            forecast[field] = {"by": station, "mean": reading[0].item(), "spread": reading[1].item()}
        print(forecast)
    else:
        reading = torch.tensor([1.0 + rank.index, 0.5 * rank.index])
        dist.send(reading, 2)


@mistake("group mismatch", culprits=(4, 5), also=("call ordering",), ranks=6)
def layers_from_an_odd_number_on(rank: Rank) -> None:
    """Even layers are averaged down the columns, odd ones along the rows; all ranks are on one machine."""
    rows = [dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])]
    columns = [dist.new_group([column, column + 3]) for column in range(3)]
    first = rank.index // 4  # culprit
    for layer in range(first, first + 3):  # culprit
        group = rows[rank.index // 3] if layer % 2 else columns[rank.index % 3]  # culprit
        dist.all_reduce(torch.ones(5), group=group)  # culprit
