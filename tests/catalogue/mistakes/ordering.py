"""Call ordering: ranks meet in different collectives."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from tests.catalogue.programs import Rank, mistake


@mistake("call ordering", culprits=(1,), ranks=4)
def metrics_before_the_loss(rank: Rank) -> None:
    loss, hits = torch.ones(1), torch.ones(4)
    if rank.index == 1:
        dist.broadcast(hits, 0)  # culprit
        dist.all_reduce(loss)  # culprit
    else:
        dist.all_reduce(loss)
        dist.broadcast(hits, 0)


@mistake("call ordering", culprits=(2,), ranks=3, also=("size mismatch",))
def parameters_in_another_order(rank: Rank) -> None:
    """A state that was loaded from a file lists its tensors in the order they were saved in."""
    state = {"weight": torch.ones(6), "bias": torch.ones(4), "scale": torch.ones(1)}
    if rank.index == 2:
        state = dict(sorted(state.items()))
    for tensor in state.values():
        dist.all_reduce(tensor)  # culprit


@mistake("call ordering", ranks=2)
def swapped_in_the_fiftieth_step(rank: Rank) -> None:
    total, parts = torch.ones(2), [torch.zeros(2) for _ in range(2)]
    for step in range(60):
        if step == 49 and rank.index == 1:
            dist.all_gather(parts, total)  # culprit
            dist.all_reduce(total)  # culprit
        else:
            dist.all_reduce(total)  # culprit
            dist.all_gather(parts, total)  # culprit


@mistake("call ordering", culprits=(3,), ranks=4)
def objects_against_tensors(rank: Rank) -> None:
    counts: list[Any] = [None] * 4
    if rank.index == 3:
        dist.all_gather_object(counts, 7)  # culprit
    else:
        dist.all_gather([torch.zeros(1, dtype=torch.int64) for _ in range(4)], torch.tensor([7]))
    dist.barrier()


@mistake("call ordering", culprits=(0,), ranks=3)
def functional_ones_swapped(rank: Rank) -> None:
    mine = torch.ones(3)
    if rank.index == 0:
        parts = funcol.all_gather_tensor(mine, 0, rank.group)  # culprit
        total = funcol.all_reduce(mine, "sum", rank.group)  # culprit
    else:
        total = funcol.all_reduce(mine, "sum", rank.group)
        parts = funcol.all_gather_tensor(mine, 0, rank.group)
    assert float(total.sum() + parts.sum()) == 18


@mistake("call ordering", culprits=(4,), ranks=6)
def a_barrier_for_a_sum_in_a_sub_group(rank: Rank) -> None:
    evens = dist.new_group([0, 2, 4])
    share = torch.ones(5)
    for _ in range(3):
        dist.all_reduce(share)
    if rank.index == 4:
        dist.barrier(group=evens)  # culprit
    elif rank.index in (0, 2):
        dist.all_reduce(share, group=evens)
    dist.barrier()


@mistake("call ordering", culprits=(0,), ranks=3)
def reduced_to_the_one_that_reports(rank: Rank) -> None:
    loss = torch.ones(1)
    for _ in range(4):
        if rank.index == 0:
            dist.reduce(loss, 0)  # culprit
        else:
            dist.all_reduce(loss)


@mistake("call ordering", culprits=(1,), ranks=3)
def receives_what_is_broadcast(rank: Rank) -> None:
    weights = torch.ones(8)
    dist.barrier()
    if rank.index == 1:
        dist.recv(weights, src=0)  # culprit
    else:
        dist.broadcast(weights, src=0)


@mistake("call ordering", culprits=(2,), ranks=4)
def saved_before_the_last_step(rank: Rank) -> None:
    gradient, steps = torch.ones(16), 40
    for step in range(steps):
        last = step == steps - 1
        if last and rank.index == 2:
            dist.barrier()  # culprit
        dist.all_reduce(gradient)  # culprit
        if last and rank.index != 2:
            dist.barrier()


@mistake("call ordering", culprits=(5,), ranks=6)
def scattered_where_others_gather(rank: Rank) -> None:
    share = torch.ones(2)
    parts = [torch.zeros(2) for _ in range(6)] if rank.index == 0 else None
    dist.all_reduce(share)
    if rank.index == 5:
        dist.scatter(share, parts, src=0)  # culprit
    else:
        dist.gather(share, parts, dst=0)
    dist.barrier()


@mistake("call ordering", ranks=3)
def two_threads_on_one_group(rank: Rank) -> None:
    """Nothing says whether the metrics or the gradients come first; on a rank with a slow disk it is the gradients."""

    def send_metrics() -> None:
        time.sleep(1.0 if rank.index == 1 else 0.0)
        dist.broadcast(torch.ones(2), 0)  # culprit

    sender = threading.Thread(target=send_metrics)
    sender.start()
    time.sleep(0.5)
    dist.all_reduce(torch.ones(4))  # culprit
    sender.join()


@mistake("call ordering", culprits=(1,), ranks=3)
def the_way_without_experts(rank: Rank) -> None:
    """The other way through a layer, which ends in a return of its own."""

    def layer(tokens: torch.Tensor, dense: bool) -> torch.Tensor:
        if dense:
            out = torch.empty(3 * len(tokens))
            dist.all_gather_into_tensor(out, tokens)  # culprit
            return out[: len(tokens)]
        out = torch.empty_like(tokens)
        dist.all_to_all_single(out, tokens)
        return out

    for step in range(4):
        layer(torch.ones(6), dense=rank.index == 1 and step == 2)


@mistake("call ordering", culprits=(1,), ranks=3)
def tasks_by_what_they_cost_here(rank: Rank) -> None:
    """Every rank measures for itself how long its tasks take, and begins with the shortest."""
    flags, weights = torch.ones(2), torch.ones(3)
    tasks = {
        "flags": lambda: dist.all_reduce(flags),  # culprit
        "weights": lambda: dist.broadcast(weights, src=0),  # culprit
    }
    for step in range(4):
        slow = rank.index == 1 and step == 3
        cost = {"flags": 0.4 if slow else 0.1, "weights": 0.2}
        for name in sorted(tasks, key=cost.__getitem__):  # culprit
            tasks[name]()  # culprit


@mistake("call ordering", ranks=2)
def a_thread_that_counts_beside_the_loop(rank: Rank) -> None:
    """Both reduce on one group, and who comes first is each rank's own luck."""

    def count() -> None:
        time.sleep(0.2 if rank.index == 1 else 0.0)
        dist.all_reduce(torch.ones(1))  # culprit

    dist.barrier()
    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    time.sleep(0.0 if rank.index == 1 else 0.2)
    dist.all_reduce(torch.ones(16))  # culprit
    counter.join()


@mistake("call ordering", culprits=(0, 1, 2, 3), ranks=4)
def a_heartbeat_beside_the_training(rank: Rank) -> None:
    """It goes well as long as both are quick."""
    pulse = torch.ones(1)

    def beat(times: int) -> None:
        for _ in range(times):
            dist.all_reduce(pulse)  # culprit

    heart = threading.Thread(target=beat, args=(5,))
    heart.start()
    for _ in range(5):
        dist.all_reduce(torch.ones(1))  # culprit
    heart.join()


@mistake("call ordering", culprits=(2,), ranks=3)
def one_logs_in_a_pool(rank: Rank) -> None:
    """The others log between two steps; this one hands it over, and is lucky."""
    losses = torch.ones(4)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            if rank.index == 2:
                logged = pool.submit(dist.all_reduce, losses.clone())  # culprit
                time.sleep(0.1)
                dist.all_reduce(losses)  # culprit
                logged.result()
            else:
                dist.all_reduce(losses.clone())
                dist.all_reduce(losses)


@mistake("call ordering", culprits=(0, 1, 2, 3), ranks=4)
def prefetched_on_the_group_of_the_row(rank: Rank) -> None:
    """The next batch is exchanged in a thread, on the group that the loss is averaged on."""
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    row = rows[rank.index // 2]

    def fetch() -> None:
        batch = torch.full((4,), float(rank.index))
        dist.broadcast(batch, src=2 * (rank.index // 2), group=row)  # culprit

    dist.barrier()
    fetcher = threading.Thread(target=fetch, daemon=True)
    fetcher.start()
    time.sleep(0.1)
    dist.all_reduce(torch.ones(1), group=row)  # culprit
    fetcher.join()
    dist.barrier()


@mistake("call ordering", culprits=(1,), ranks=3)
def totals_in_the_order_in_which_they_were_met(rank: Rank) -> None:
    """One line, and a dictionary that every rank has filled by itself."""
    met = ["length", "loss", "loss"] if rank.index == 1 else ["loss", "length", "loss"]
    totals: dict[str, torch.Tensor] = {}
    for name in met:
        totals.setdefault(name, torch.zeros(2 if name == "loss" else 7)).add_(1)
    for total in totals.values():  # culprit
        dist.all_reduce(total)  # culprit


@mistake("call ordering", culprits=(2,), ranks=3)
def callbacks_by_a_priority_that_one_has_changed(rank: Rank) -> None:
    class Rate:
        priority = 1

        def after(self) -> None:
            dist.broadcast(torch.ones(1), 0)  # culprit

    class Timing:
        priority = 2

        def after(self) -> None:
            dist.all_gather([torch.zeros(2) for _ in range(3)], torch.ones(2))  # culprit

    callbacks: list[Any] = [Rate(), Timing()]
    for step in range(4):
        if (rank.index, step) == (2, 2):
            callbacks[1].priority = 0
        for callback in sorted(callbacks, key=lambda each: each.priority):
            callback.after()


@mistake("call ordering", ranks=2)
def a_reporter_beside_the_loop(rank: Rank) -> None:
    """A thread sends what the loop has put for it, whenever it gets to it."""
    inbox: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def report() -> None:
        while (loss := inbox.get()) is not None:
            time.sleep(0.05)  # as long as it takes to put it in words
            dist.all_reduce(torch.tensor([loss, 1.0]))  # culprit

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    for step in range(6):
        inbox.put(float(step))
        time.sleep(0.1 * ((step + rank.index) % 2))
        dist.all_reduce(torch.ones(64))  # culprit
    inbox.put(None)
    reporter.join()


@mistake("call ordering", culprits=(1,), ranks=3)
def figures_by_name_in_another_order(rank: Rank) -> None:
    """The names say what is called: all come to both."""
    figures = {"slowest": torch.ones(1), "histogram": torch.ones(8)}
    for epoch in range(4):
        if rank.index == 1 and epoch == 2:
            figures = dict(reversed(figures.items()))
        for name, value in figures.items():
            if name == "histogram":
                dist.reduce(value, dst=0)  # culprit
            else:
                dist.all_reduce(value, op=dist.ReduceOp.MAX)  # culprit


@mistake("call ordering", culprits=(3,), ranks=4)
def objects_to_one_where_all_get_them(rank: Rank) -> None:
    """Both exchange sizes first, and these meet."""
    for epoch in range(5):
        report = {"epoch": epoch, "rank": rank.index}
        if rank.index == 3 and epoch == 4:
            dist.gather_object(report, dst=0)  # culprit
            continue
        everyone: list[Any] = [None] * 4
        dist.all_gather_object(everyone, report)  # culprit
    dist.barrier()


@mistake("call ordering", culprits=(0,), ranks=4, also=("deadlock",))
def its_groups_in_another_order(rank: Rank) -> None:
    groups = {name: dist.new_group([0, 1, 2, 3]) for name in ("encoder", "decoder")}
    names = ["decoder", "encoder"] if rank.index == 0 else ["encoder", "decoder"]  # culprit
    for name in names:
        dist.all_reduce(torch.ones(5), group=groups[name])  # culprit


@mistake("call ordering", culprits=(1,), ranks=4, also=("missing call", "unmatched message"))
def is_given_by_hand_what_is_broadcast(rank: Rank) -> None:
    weights = torch.ones(3)
    if rank.index == 1:
        dist.recv(weights, 0)  # culprit
    else:
        dist.broadcast(weights, 0)
    dist.all_reduce(weights)


@mistake("call ordering", culprits=(1,), ranks=3, also=("deadlock",))
def groups_as_their_gradients_became_ready(rank: Rank) -> None:
    """Both groups have all ranks; a queue brings them in another order."""
    groups = {name: dist.new_group(list(range(rank.world_size))) for name in ("dense", "sparse")}
    ready = ["sparse", "dense"] if rank.index == 1 else ["dense", "sparse"]  # culprit
    while ready:
        name = ready.pop(0)
        dist.all_reduce(torch.ones(8), group=groups[name])  # culprit


@mistake("call ordering", between=(1, 2), ranks=4, also=("deadlock", "group mismatch"))
def by_what_each_has_measured(rank: Rank) -> None:
    """That ranks 0 and 3 come to the whole first says nothing: they have no other group."""
    groups = {"whole": dist.new_group([0, 1, 2, 3]), "inner": dist.new_group([1, 2])}
    seconds = {"whole": 0.2, "inner": 0.1 * (rank.index + 0.5)} if rank.index in (1, 2) else {"whole": 0.2}
    for name in sorted(seconds, key=seconds.__getitem__):  # culprit
        dist.all_reduce(torch.ones(4), group=groups[name])  # culprit


@mistake("call ordering", culprits=(1,), ranks=3, also=("deadlock",))
def does_what_is_on_its_list_in_another_order(rank: Rank) -> None:
    activation = torch.ones(4)

    def agree() -> None:
        dist.all_reduce(torch.ones(1))  # culprit

    def listen() -> None:
        if rank.index > 0:
            dist.recv(activation, rank.index - 1)  # culprit

    def speak() -> None:
        if rank.index < 2:
            dist.send(activation, rank.index + 1)

    todo = [listen, speak, agree] if rank.index == 1 else [agree, listen, speak]  # culprit
    for act in todo:
        act()  # culprit
