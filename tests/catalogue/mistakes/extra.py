"""Extra call: a rank makes a collective that nobody else makes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("extra call", culprits=(0,), ranks=3)
def rank_zero_logs_an_average(rank: Rank) -> None:
    loss = torch.ones(1)
    for step in range(10):
        dist.all_reduce(loss)
        if step == 5 and rank.index == 0:
            shown = loss.clone().repeat(2)
            dist.all_reduce(shown)  # culprit


@mistake("extra call", culprits=(1,), ranks=4)
def one_more_batch(rank: Rank) -> None:
    batches = [torch.ones(4) for _ in range(9 if rank.index == 1 else 8)]
    for batch in batches:  # culprit
        dist.all_reduce(batch)  # culprit
    dist.barrier()


@mistake("extra call", culprits=(0,), ranks=4)
def waits_twice_after_saving(rank: Rank) -> None:
    dist.all_reduce(torch.ones(1))
    if rank.index == 0:
        dist.barrier()  # culprit
    dist.barrier()  # culprit


@mistake("extra call", culprits=(2,), ranks=6)
def tries_again(rank: Rank) -> None:
    count = torch.ones(1)
    for attempt in range(2):
        dist.all_reduce(count)  # culprit
        if rank.index != 2 or attempt:
            break
    dist.broadcast(count, 0)


@mistake("extra call", culprits=(3,), ranks=4)
def sends_its_settings_in_the_first_step(rank: Rank) -> None:
    for step in range(5):
        if step == 0 and rank.index == 3:
            dist.broadcast_object_list([{"rate": 0.1}], src=0)  # culprit
        dist.all_reduce(torch.ones(3))


@mistake("extra call", culprits=(4,), ranks=6)
def a_check_left_in_a_sub_group(rank: Rank) -> None:
    odd = [1, 3, 4]
    group = dist.new_group(odd)
    value = torch.ones(2)
    if rank.index in odd:
        dist.all_reduce(value, group=group)
        if rank.index == 4:
            dist.all_gather([torch.zeros(2) for _ in odd], value, group=group)  # culprit
        dist.broadcast(value, 1, group=group)
    dist.barrier()


@mistake("extra call", culprits=(1,), ranks=3)
def once_more_in_the_fiftieth_step(rank: Rank) -> None:
    """All calls are alike: who is one ahead is seen only at the end."""
    gradient, steps = torch.ones(4), 55
    for step in range(steps):
        dist.all_reduce(gradient)
        if step == 49 and rank.index == 1 and not gradient.isnan().any():
            dist.all_reduce(gradient)  # culprit


@mistake("extra call", culprits=(1,), ranks=2, also=("missing call",))
def of_two_one_gathers_the_hosts(rank: Rank) -> None:
    dist.barrier()
    if rank.index == 1:
        hosts: list[Any] = [None, None]
        dist.all_gather_object(hosts, "node")  # culprit
    dist.all_reduce(torch.ones(4))  # culprit


@mistake("extra call", culprits=(2,), ranks=3)
def sums_what_is_summed_already(rank: Rank) -> None:
    total = funcol.all_reduce(torch.ones(2), "sum", rank.group)
    if rank.index == 2:
        total = funcol.all_reduce(total * 2, "sum", rank.group)  # culprit
    dist.barrier()
    assert float(total.sum()) > 0


@mistake("extra call", culprits=(3,), ranks=4)
def a_last_flush(rank: Rank) -> None:
    pending: list[torch.Tensor] = []
    for _ in range(10 if rank.index == 3 else 9):
        pending.append(torch.ones(2))
        if len(pending) == 3:
            dist.all_reduce(torch.stack(pending))
            pending.clear()
    if pending:  # culprit
        dist.all_reduce(torch.stack(pending))  # culprit


@mistake("extra call", culprits=(1,), ranks=3)
def a_sample_that_cannot_be_read(rank: Rank) -> None:
    """What reads them synchronizes, where only one has to."""

    def read(number: int) -> torch.Tensor:
        try:
            if number == 7 and rank.index == 1:
                raise OSError("truncated")
        except OSError:
            dist.barrier()  # culprit
        return torch.ones(2)

    for number in range(10):
        sample = read(number)
        dist.all_reduce(sample)


@mistake("extra call", culprits=(0,), ranks=4)
def saved_by_the_first_alone(rank: Rank) -> None:
    """The barrier belongs behind what is done by one rank, and is part of it."""

    def by_the_first(function: Callable[[int], None]) -> Callable[[int], None]:
        def wrapper(step: int) -> None:
            if rank.index == 0:
                function(step)

        return wrapper

    @by_the_first
    def save(step: int) -> None:
        dist.barrier()  # culprit

    for step in range(6):
        dist.all_reduce(torch.ones(2))
        if step % 3 == 2:
            save(step)


@mistake("extra call", culprits=(2,), ranks=4)
def tried_once_more(rank: Rank) -> None:
    """What is tried again has reduced already."""

    def patiently(function: Callable[[], None]) -> None:
        for _ in range(3):
            try:
                function()
            except TimeoutError:
                continue
            return

    def step(first: list[int]) -> None:
        dist.all_reduce(torch.ones(1))  # culprit
        if rank.index == 2 and first:
            first.clear()
            raise TimeoutError("nobody listens")

    for number in range(6):
        patience = [1] if number == 4 else []
        patiently(lambda patience=patience: step(patience))  # type: ignore[misc]
        dist.broadcast(torch.zeros(1), src=0)


@mistake("extra call", culprits=(2,), ranks=4)
def a_layer_that_the_others_drop(rank: Rank) -> None:
    """The others are in the next layer by then; its own call of that one would have followed."""
    dropped = {0: True, 1: False, 2: True, 3: rank.index != 2, 4: False}

    def layer(value: torch.Tensor, drop: bool) -> None:
        dist.all_reduce(value)
        if not drop:
            shares = [torch.zeros(2) for _ in range(4)]
            dist.all_gather(shares, value)  # culprit

    for number in range(5):
        layer(torch.ones(2), dropped[number])


@mistake("extra call", culprits=(1,), ranks=4)
def one_of_a_pair_adds_a_bias(rank: Rank) -> None:
    """Of two nobody is in the majority; the other pair shows how many there are to be."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[rank.index // 2]
    for layer in range(4):
        dist.all_reduce(torch.ones(2, 3), group=mine)
        if layer == 2 and rank.index == 1:
            dist.all_reduce(torch.ones(3), group=mine)  # culprit
    dist.barrier()


@mistake("extra call", culprits=(2,), ranks=4)
def one_report_more_in_a_thread(rank: Rank) -> None:
    """Reporters are three, on a group of their own, and one of them has counted wrongly."""
    reporters = dist.new_group([0, 1, 2])
    reports = 3 if rank.index == 2 else 2

    def report() -> None:
        for _ in range(reports):  # culprit
            dist.all_reduce(torch.ones(1), group=reporters)  # culprit

    thread = threading.Thread(target=report, daemon=True)
    if rank.index < 3:
        thread.start()
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if rank.index < 3:
        thread.join()
    dist.barrier()


@mistake("extra call", culprits=(3,), ranks=4)
def a_panel_handed_on_twice(rank: Rank) -> None:
    row = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank.index // 2]
    column = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank.index % 2]
    for step in range(4):
        pivot, panel = torch.ones(1), torch.ones(5)
        dist.all_reduce(pivot, op=dist.ReduceOp.MAX, group=row)
        root = dist.get_process_group_ranks(column)[step % 2]
        dist.broadcast(panel, src=root, group=column)
        if rank.index == 3 and step == 1:
            dist.broadcast(panel, src=root, group=column)  # culprit


@mistake("extra call", culprits=(1,), ranks=3)
def keeps_what_is_best_by_its_own_score(rank: Rank) -> None:
    """All have come there once; from the call before one comes there first, and then to the barrier."""
    scores = [(0.7, 0.9), (0.7, 0.5), (0.7, 0.8)][rank.index]
    best = 1.0
    for epoch, score in enumerate(scores):
        dist.all_reduce(torch.ones(6))
        if score < best:  # culprit
            best = score
            dist.all_gather_object([None] * 3, epoch)  # culprit
        dist.barrier()
