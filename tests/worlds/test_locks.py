"""Locks of a rank's own threads: one finding where a lock keeps the rank from what the others wait for."""

from __future__ import annotations

import linecache
import threading
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.step import Site

DEADLINE_S = 60.0  # that a test which waits for it would not be forgiven
SOON_S = 2.0  # a deadline that a test may wait for
EARLY_S = 20.0  # well before it, on the busiest machine
Body = Callable[[], None]

guard = threading.Lock()


def mark_of(site: Site | None) -> str:
    assert site is not None
    return linecache.getline(site.file, site.line).rstrip().partition("  # ")[2]


def found(body: Body, ranks: int) -> Finding:
    with World(ranks) as world:
        outcome = world.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < EARLY_S
    (finding,) = outcome.findings
    return finding


def held_in_a_collective() -> None:
    side, saved = dist.new_group([0, 1]), torch.ones(2)
    lock = threading.Lock()

    def save() -> None:
        with lock:  # wanted
            dist.broadcast(saved, src=0, group=side)

    thread = threading.Thread(target=save)
    if dist.get_rank() == 1:
        with lock:  # taken
            thread.start()
            dist.all_reduce(torch.ones(2))  # held
        thread.join()
    else:
        thread.start()
        thread.join()
        dist.all_reduce(torch.ones(2))


def test_a_lock_that_is_held_in_a_collective() -> None:
    finding = found(held_in_a_collective, 2)
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, (1,))
    first, second, *_ = finding.sides
    assert (mark_of(first.sites[0]), mark_of(second.sites[0])) == ("held", "wanted")
    assert first.did.startswith("holds the lock 'lock', taken at ")
    assert first.did.endswith("while it waits in all_reduce #0 on 'default'")
    assert str(second).startswith("rank 1 waits for that lock in another thread, at ")


def held_in_a_receive() -> None:
    """Rank 0 answers what the thread of rank 1 would send, which waits for the lock."""
    table, ready = threading.Lock(), threading.Event()

    def push() -> None:
        ready.wait()
        with table:  # wanted
            dist.send(torch.ones(3), 0, tag=7)

    if dist.get_rank() == 0:
        dist.recv(torch.zeros(3), 1, tag=7)
        dist.send(torch.ones(3), 1, tag=8)
        return
    pusher = threading.Thread(target=push, daemon=True)
    pusher.start()
    with table:  # taken
        ready.set()
        dist.recv(torch.zeros(3), 0, tag=8)  # held
    pusher.join()


def test_a_lock_that_is_held_while_a_message_is_awaited() -> None:
    finding = found(held_in_a_receive, 2)
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, (1,))
    assert [mark_of(side.sites[0]) for side in finding.sides[:2]] == ["held", "wanted"]


def held_by_who_reports() -> None:
    """What the loop of rank 1 calls is written for it alone: rank 0 comes to the same behind the lock."""
    side, total = dist.new_group([0, 1]), torch.ones(1)
    screen, begun = threading.Lock(), threading.Event()

    def report() -> None:
        with screen:
            begun.set()
            dist.broadcast(torch.ones(1), src=1, group=side)  # held

    reporter = threading.Thread(target=report, daemon=True)
    if dist.get_rank() == 1:
        dist.all_reduce(total)
        reporter.start()
    else:
        reporter.start()
        begun.wait()
        with screen:  # wanted
            dist.all_reduce(total)
    reporter.join()


def test_who_waits_for_the_same_call_waits_for_the_lock() -> None:
    finding = found(held_by_who_reports, 2)
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, (0,))
    assert [mark_of(side.sites[0]) for side in finding.sides[:2]] == ["held", "wanted"]


def held_by_both() -> None:
    """Each has what it calls wait for the same lock, and the two come to it in different orders."""
    gradients, metrics = dist.new_group([0, 1]), dist.new_group([0, 1])
    network, entered = threading.Lock(), threading.Event()

    def reduce(group: dist.ProcessGroup) -> None:
        with network:  # wanted
            entered.set()
            dist.all_reduce(torch.ones(2), group=group)  # held

    first, second = (gradients, metrics) if dist.get_rank() == 0 else (metrics, gradients)
    one = threading.Thread(target=reduce, args=[first])
    one.start()
    entered.wait()
    time.sleep(0.3 * dist.get_rank())  # the other thread of rank 1 may still do something when it is asked first
    other = threading.Thread(target=reduce, args=[second])
    other.start()
    one.join()
    other.join()


def test_ranks_that_each_hold_a_lock_the_other_needs_are_not_told_apart() -> None:
    finding = found(held_by_both, 2)
    assert (finding.kind, finding.culprits) == (FindingKind.DEADLOCK, ())
    assert finding.lines[0] == "deadlock: ranks 0, 1 wait for each other, each with a lock"
    assert [side.ranks for side in finding.sides] == [(0,), (0,), (1,), (1,)]
    assert [mark_of(side.sites[0]) for side in finding.sides] == ["held", "wanted"] * 2


def log(value: float) -> float:
    with guard:  # wanted
        return value


def taken_twice() -> None:
    loss = torch.ones(1)
    if dist.get_rank() == 2:
        with guard:
            log(loss.item())
    dist.all_reduce(loss)


def acquired_twice() -> None:
    if dist.get_rank() == 2:
        guard.acquire()
        guard.acquire()  # wanted
    dist.barrier()


@pytest.mark.parametrize("body", [taken_twice, acquired_twice])
def test_a_lock_that_the_thread_has_itself(body: Body) -> None:
    finding = found(body, 3)
    assert (finding.kind, finding.culprits) == (FindingKind.STUCK_RANK, (2,))
    assert mark_of(finding.sides[0].sites[0]) == "wanted"
    assert "waits for the lock 'guard', which it has itself taken at " in str(finding)
    assert (" in log, called at " in finding.lines[0]) == (body is taken_twice)
    assert finding.sides[1].ranks == (0, 1)


def held_by_one_that_sleeps() -> None:
    def measure() -> None:
        with guard:
            time.sleep(60 if dist.get_rank() == 1 else 0)

    threading.Thread(target=measure, daemon=True).start()
    time.sleep(0.2)
    with guard:
        dist.barrier()


def test_who_holds_a_lock_is_told_where_nothing_is_certain() -> None:
    with World(2) as world:
        outcome = world.run(held_by_one_that_sleeps, deadline=SOON_S)
    assert (outcome.findings, outcome.culprits) == ((), (1,))
    assert "rank 1 was still running at the deadline, waiting for the lock 'guard' at " in outcome.summary()
    assert " in measure, before its first step" in outcome.summary()


def left_out_while_a_lock_is_held() -> None:
    """The thread that waits for the lock has nothing to do with it: a collective is left out."""

    def report() -> None:
        with guard:
            print("all is well")

    if dist.get_rank() == 0:
        return
    with guard:
        threading.Thread(target=report, daemon=True).start()
        dist.all_reduce(torch.ones(1))


def test_a_lock_that_keeps_nobody_waiting_is_not_the_cause() -> None:
    with World(3) as world:
        outcome = world.run(left_out_while_a_lock_is_held, deadline=DEADLINE_S)
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (0,))
