"""Workers that stop as they are told, and masters that lost count of whom they have told."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import marks, run

STOP = -1


def send(number: int, worker: int) -> None:
    dist.send(torch.tensor([number]), dst=worker)


def works(stop: int = STOP, most: int = 100) -> None:
    task = torch.zeros(1, dtype=torch.int64)
    done = 0
    while True:
        dist.recv(task, src=0)
        if int(task) == stop:
            break
        dist.send(task * 2, dst=0)
        done += 1
        if done == most:
            break


def works_as_it_is_told() -> None:
    task = torch.zeros(1, dtype=torch.int64)
    while True:
        dist.recv(task, src=0)
        if (number := int(task)) == STOP:
            break
        dist.send(torch.tensor([number]), dst=0)


def hands_out(times: int = 2) -> None:
    answer = torch.zeros(1, dtype=torch.int64)
    for number in range(times):
        for worker in range(1, 4):
            send(number, worker)
            dist.recv(answer, src=worker)


def stops_one_twice(rank: RankContext) -> None:
    if rank.index == 0:
        hands_out()
        send(STOP, 2)
        for worker in range(1, 4):
            dist.send(torch.tensor([STOP]), dst=worker)  # again
    else:
        works_as_it_is_told()
    dist.barrier()


def forgets_to_stop_one(rank: RankContext) -> None:
    if rank.index == 0:
        hands_out()
        for worker in range(1, 4):
            if worker != 2:
                dist.send(torch.tensor([STOP]), dst=worker)  # again
    else:
        works_as_it_is_told()
    dist.barrier()


def asks_one_that_it_has_stopped(rank: RankContext) -> None:
    if rank.index == 0:
        hands_out()
        for worker in range(1, 4):
            dist.send(torch.tensor([STOP]), dst=worker)
        dist.recv(torch.zeros(1, dtype=torch.int64), src=2)  # again
    else:
        works_as_it_is_told()
    dist.barrier()


@pytest.mark.parametrize("body", [stops_one_twice, forgets_to_stop_one, asks_one_that_it_has_stopped])
def test_who_tells_workers_when_to_stop_has_lost_count(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (0,))
    assert "again" in marks(found)[0] | marks(found)[-1]


def does_not_listen(rank: RankContext) -> None:
    """All are told from one line, and the last one from another; it waits for another word."""
    if rank.index == 0:
        hands_out()
        for worker in range(1, 3):
            dist.send(torch.tensor([STOP]), dst=worker)
        dist.send(torch.tensor([STOP]), dst=3)
    else:
        works(stop=-2 if rank.index == 3 else STOP)


def leaves_by_itself(rank: RankContext) -> None:
    if rank.index == 0:
        for number in (0, 1, STOP):
            for worker in range(1, 4):
                send(number, worker)
    else:
        task = torch.zeros(1, dtype=torch.int64)
        done = 0
        while True:
            dist.recv(task, src=0)
            done += 1
            if int(task) == STOP or done == (1 if rank.index == 2 else 9):
                break


@pytest.mark.parametrize("body", [does_not_listen, leaves_by_itself])
def test_a_worker_that_goes_by_its_own_word_is_nobody_elses_fault(
    fresh: World, body: Callable[[RankContext], None]
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert 0 not in found.culprits


# ------------------------------------------------------------------------------------- who is alone in what it brings


def expects_more_rows(rank: RankContext) -> None:
    """The first that stages exchange: who waits for the stage before it says what all expect."""
    rows = torch.zeros(3 if rank.index == 1 else 2, 4)
    if rank.index:
        dist.recv(rows, src=rank.index - 1)  # alone
    if rank.index < 3:
        dist.send(torch.zeros(2, 4), dst=rank.index + 1)


def expects_more_rows_before_others_begin(rank: RankContext) -> None:
    """On a busy machine one rank begins long after another: the two that could tell have posted nothing so far."""
    rows = torch.zeros(3 if rank.index == 1 else 2, 4)
    if rank.index > 1:
        time.sleep(1.0)  # longer than ranks that have come are waited for
    if rank.index:
        dist.recv(rows, src=rank.index - 1)  # alone
    if rank.index < 3:
        dist.send(torch.zeros(2, 4), dst=rank.index + 1)


def sends_itself_more_than_it_expects(rank: RankContext) -> None:
    sent = [1] * 4
    expected = list(sent)
    if rank.index == 2:
        expected[2] = 2
    dist.all_to_all_single(torch.zeros(sum(expected)), torch.zeros(4), expected, sent)  # alone


def sends_to_another_than_all(rank: RankContext) -> None:
    x = torch.zeros(3)
    if rank.index == 1:
        for other in (0, 2, 3):
            dist.send(x, dst=other)
    else:
        dist.recv(x, src=0 if rank.index == 2 else 1)  # alone


@pytest.mark.parametrize(
    ("body", "kind", "culprit"),
    [
        (expects_more_rows, FindingKind.SIZE, 1),
        (expects_more_rows_before_others_begin, FindingKind.SIZE, 1),
        (sends_itself_more_than_it_expects, FindingKind.SIZE, 2),
        (sends_to_another_than_all, FindingKind.UNMATCHED, 2),
    ],
)
def test_who_is_alone_at_a_line_with_what_it_brings_is_to_blame(
    fresh: World, body: Callable[[RankContext], None], kind: FindingKind, culprit: int
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (kind, (culprit,))
    assert marks(found)[0] == {"alone"}


def half_of_a_batch_is_left_out(rank: RankContext) -> None:
    x, y = torch.ones(3), torch.zeros(3)
    ops = [dist.P2POp(dist.isend, x, (rank.index + 1) % 4), dist.P2POp(dist.irecv, y, (rank.index - 1) % 4)]
    for work in dist.batch_isend_irecv(ops[1:] if rank.index == 1 else ops):  # alone
        work.wait()
    dist.barrier()


def row_that_goes_on_to_its_beginning(rank: RankContext) -> None:
    """A ring without one receive, or a row whose last rank sends too far: nobody can say."""
    x, y = torch.ones(3), torch.zeros(3)
    ops = [dist.P2POp(dist.isend, x, (rank.index + 1) % 4)]
    if rank.index:
        ops.append(dist.P2POp(dist.irecv, y, rank.index - 1))
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def test_of_a_batch_in_which_all_others_have_both_halves_one_is_left_out(fresh: World) -> None:
    (found,) = run(fresh, half_of_a_batch_is_left_out, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (1,))
    assert marks(found)[0] == {"alone"}


def test_a_ring_and_a_row_look_alike(fresh: World) -> None:
    (found,) = run(fresh, row_that_goes_on_to_its_beginning, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, ())


# ------------------------------------------------------------------------------------- rounds of one line


def leaves_one_of_several_out(rank: RankContext) -> None:
    for turn in range(3):
        for size in (6, 2, 5):
            if (rank.index, turn, size) != (2, 1, 2):
                dist.all_reduce(torch.ones(size))


def brings_a_short_last_batch(rank: RankContext) -> None:
    for size in (4, 4, 1 if rank.index == 2 else 4):
        parts = [torch.zeros(size) for _ in range(4)]
        dist.all_gather(parts, torch.ones(size))


@pytest.mark.parametrize(
    ("body", "kind"), [(leaves_one_of_several_out, FindingKind.MISSING), (brings_a_short_last_batch, FindingKind.SIZE)]
)
def test_the_round_before_says_whose_turn_it_is(
    fresh: World, body: Callable[[RankContext], None], kind: FindingKind
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (kind, (2,))


def takes_leave(rank: RankContext) -> None:
    if rank.index == 0:
        hands_out()
        for worker in range(1, 4):
            send(STOP, worker)
    else:
        works_and_may_report(reports=rank.index == 2)
    dist.barrier()


def works_and_may_report(*, reports: bool) -> None:
    task, done = torch.zeros(1, dtype=torch.int64), 0
    while True:
        dist.recv(task, src=0)
        if int(task) == STOP:
            break
        dist.send(task * 2, dst=0)
        done += 1
    if reports:
        dist.send(torch.tensor([done]), dst=0)  # report


def test_who_sends_once_more_at_its_end_is_to_blame(fresh: World) -> None:
    (found,) = run(fresh, takes_leave, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (2,))
    assert "report" in set[str]().union(*marks(found))


def forgets_the_report(rank: RankContext) -> None:
    """What one of them is to send, which the first would have received."""
    if rank.index == 0:
        hands_out()
        for worker in range(1, 4):
            send(STOP, worker)
        if rank.world_size > 4:
            dist.recv(torch.zeros(1, dtype=torch.int64), src=2)
    else:
        works_and_may_report(reports=rank.index == 2)
    dist.barrier()


def test_who_sends_what_another_would_have_received_is_not(fresh: World) -> None:
    (found,) = run(fresh, forgets_the_report, deadline=30).findings
    assert found.culprits != (2,)


def collects() -> None:
    dist.recv(torch.zeros(1, dtype=torch.int64), src=2)


def forgets_the_report_by_a_flag(rank: RankContext) -> None:
    """What would have received it is in a function of its own."""
    if rank.index == 0:
        hands_out()
        for worker in range(1, 4):
            send(STOP, worker)
        if rank.world_size > 4:
            collects()
    else:
        works_and_may_report(reports=rank.index == 2)
    dist.barrier()


def has_it_reported_once_less(rank: RankContext) -> None:
    """Three of them came, and the fourth is not waited for."""
    if rank.index == 3:
        for _ in range(3):
            collects_from(0)
    else:
        for _ in range(4):
            steps_in_a_ring_of_three(rank)
    dist.barrier()


def collects_from(source: int) -> None:
    dist.recv(torch.zeros(1, dtype=torch.int64), src=source)


def steps_in_a_ring_of_three(rank: RankContext) -> None:
    mine, theirs = torch.ones(1), torch.zeros(1)
    work = dist.isend(mine, dst=(rank.index + 1) % 3)
    dist.recv(theirs, src=(rank.index - 1) % 3)
    assert work is not None
    work.wait()
    if rank.index == 0:
        dist.send(torch.ones(1, dtype=torch.int64), dst=3)


@pytest.mark.parametrize(("body", "reporter"), [(forgets_the_report_by_a_flag, 2), (has_it_reported_once_less, 0)])
def test_who_reports_is_not_to_blame(fresh: World, body: Callable[[RankContext], None], reporter: int) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert found.culprits != (reporter,)


def leaves_the_summary_out(rank: RankContext) -> None:
    """All have been told to stop, and then one of them does not take what all others take behind their loop."""
    if rank.index == 0:
        for worker in range(1, 4):
            send(1, worker)
        for worker in range(1, 4):
            send(STOP, worker) if worker > 1 else dist.send(torch.tensor([STOP]), dst=worker)
        for worker in (1, 3, 2):
            dist.send(torch.ones(2), dst=worker)
    else:
        listens()
        if rank.index != 2:
            dist.recv(torch.ones(2), src=0)
    dist.barrier()


def test_who_was_told_to_stop_may_still_be_sent_a_summary(fresh: World) -> None:
    (found,) = run(fresh, leaves_the_summary_out, deadline=30).findings
    assert found.culprits == (2,)


def pads_its_tasks_with_stops(rank: RankContext) -> None:
    if rank.index == 0:
        for place, number in enumerate([*range(1, 5), STOP, STOP]):
            send(number, place % 3 + 1)
        for worker in range(1, 4):
            dist.send(torch.tensor([STOP]), dst=worker)  # again
    else:
        listens()
    dist.barrier()


def listens() -> None:
    task = torch.zeros(1, dtype=torch.int64)
    while True:
        dist.recv(task, src=0)
        if int(task) == STOP:
            break


def test_who_tells_two_of_them_twice_is_to_blame(fresh: World) -> None:
    (found,) = run(fresh, pads_its_tasks_with_stops, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (0,))
