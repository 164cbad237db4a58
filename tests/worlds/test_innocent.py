"""Programs in which what is told of their like would be told of the wrong rank, or where nothing is wrong at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind

DEADLINE_S = 30.0
Body = Callable[[], None]


def medals_by_arrival() -> None:
    """The first to come gets gold, and each says who it is."""
    rank, runner = dist.get_rank(), torch.zeros(2)
    if rank == 0:
        table = {}
        for place, medal in enumerate(("gold", "silver", "bronze")):
            dist.recv(runner)
            table[medal] = {"place": place + 1, "who": int(runner[0]), "time": runner[1].item()}
        print(table)
    else:
        dist.send(torch.tensor([float(rank), time.time() % 100]), 0)


def test_who_counts_arrivals_means_them(four: World) -> None:
    outcome = four.run(medals_by_arrival, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()


def waits_first_for_what_is_never_sent() -> None:
    """Rank 0 is to be ahead of the others, and rank 3 does not know."""
    rank, weight = dist.get_rank(), torch.ones(2)

    def fetch() -> None:
        if rank == 0:
            dist.recv(weight, 3)

    if rank == 3 and weight.sum() > 3:
        dist.send(weight, 0)
    if rank == 0:
        fetch()
    dist.barrier()
    if rank != 0:
        fetch()


def one_does_not_begin_its_tags_anew() -> None:
    rank, data = dist.get_rank(), torch.ones(2)
    for other in (1, 2, 3):
        for step in range(4):
            if rank == 0:
                dist.send(data, other, tag=step % 2)
            elif rank == other:
                dist.recv(data, 0, tag=step if rank == 1 else step % 2)


def one_uses_a_tag_again() -> None:
    rank, data, numbers = dist.get_rank(), torch.ones(2), [0, 3, 10, 12]
    for step in range(4):
        if rank % 2 == 0:
            dist.send(data, rank + 1, tag=4 * numbers[step] + rank)
        else:
            dist.recv(data, rank - 1, tag=4 * numbers[2 if (rank, step) == (1, 3) else step] + rank - 1)


def one_is_told_twice_that_all_is_done() -> None:
    rank, task = dist.get_rank(), torch.ones(1)
    if rank == 0:
        for turn in range(4):
            for worker in (1, 2, 3):
                if worker < 3 or turn < 2:
                    dist.send(torch.ones(1), worker)
        for worker in (3, 3, 1):
            dist.send(torch.full((1,), -1.0), worker)
        return
    while True:
        dist.recv(task, 0)
        if task.item() < 0:
            return


def one_is_waited_for_that_has_nothing_to_send() -> None:
    rank, data = dist.get_rank(), torch.ones(2)
    if rank == 0:
        for worker in (1, 2, 3):
            dist.recv(data, worker)
        dist.barrier()
    elif rank == 3:
        dist.barrier()
    else:
        dist.send(data, 0)
        dist.barrier()


@pytest.mark.parametrize(
    ("body", "innocent"),
    [
        (waits_first_for_what_is_never_sent, 0),
        (one_does_not_begin_its_tags_anew, 0),
        (one_uses_a_tag_again, 0),
        (one_is_told_twice_that_all_is_done, 3),
        (one_is_waited_for_that_has_nothing_to_send, 3),
    ],
)
def test_an_innocent_rank_is_not_accused(four: World, body: Body, innocent: int) -> None:
    (finding,) = four.run(body, deadline=DEADLINE_S).findings
    assert finding.culprits != (innocent,), str(finding)


def one_row_goes_once_more() -> None:
    """Rightly so: it is rank 5 that takes its column where its row was due."""
    rank, data = dist.get_rank(), torch.ones(2)
    rows = [dist.new_group([first, first + 1]) for first in (0, 2, 4)]
    columns = [dist.new_group([first, first + 2, first + 4]) for first in (0, 1)]
    groups = {"row": (rows[rank // 2], rank // 2 * 2), "column": (columns[rank % 2], rank % 2)}
    plan = (["row"] if rank < 2 else []) + ["column", "row"] * 2
    if rank == 5:
        plan[-1] = "column"
    for axis in plan:
        group, root = groups[axis]
        dist.reduce(data, root, group=group)


def test_who_is_at_its_row_once_more_is_on_no_other_axis() -> None:
    with World(6) as six:
        (finding,) = six.run(one_row_goes_once_more, deadline=DEADLINE_S).findings
    assert finding.culprits == (5,)


def test_messages_before_a_loop_say_nothing_of_how_often_it_goes_round(four: World) -> None:
    """One returns from its last round before its message: who sends it in each has sent none too many."""

    def body() -> None:
        me = dist.get_rank()
        if me == 2:
            dist.send(torch.ones(7), dst=1, tag=2)
        if me == 1:
            dist.recv(torch.ones(7), src=2, tag=2)
        for step in range(2):
            dist.barrier()
            if me == 0 and step == 1:
                return
            if me == 3:
                dist.send(torch.ones(7), dst=0, tag=2)
            if me == 0:
                dist.recv(torch.ones(7), src=3, tag=2)

    outcome = four.run(body, deadline=60.0)
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.UNMATCHED
    assert 3 not in finding.culprits
