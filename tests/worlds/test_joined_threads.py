"""Ranks that wait for their own threads, which wait for keys of a store: so do these ranks, if nobody else will act."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

DEADLINE_S = 90.0  # which nobody comes to who is told at once
AT_ONCE_S = 30.0
LATE_S = 1.5  # longer than anybody is left alone before it is asked
ODD = 2
Body = Callable[[RankContext], None]


def publish(rank: RankContext) -> None:
    key = "address of 2" if rank.index == ODD else f"address/{rank.index}"
    rank.store.set(key, str(rank.index))


def joins_threads(rank: RankContext) -> None:
    publish(rank)
    peers = range(rank.world_size)
    threads = [threading.Thread(target=rank.store.get, args=(f"address/{p}",), daemon=True) for p in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dist.barrier()


def waits_for_a_pool(rank: RankContext) -> None:
    publish(rank)
    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(rank.store.get, [f"address/{peer}" for peer in range(rank.world_size)]))) == 4
    dist.barrier()


def one_alone_has_a_thread(rank: RankContext) -> None:
    """The others wait for it, in a collective."""
    publish(rank)
    if rank.index == 0:
        thread = threading.Thread(target=rank.store.wait, args=([f"address/{ODD}"],), daemon=True)
        thread.start()
        thread.join()
    dist.barrier()


@pytest.mark.parametrize(
    "body", [joins_threads, waits_for_a_pool, one_alone_has_a_thread], ids=lambda body: body.__name__
)
def test_a_key_that_threads_wait_for_is_told_at_once(fresh: World, body: Body) -> None:
    outcome = fresh.run_job(Job(body, with_context=True), deadline=DEADLINE_S)
    assert outcome.elapsed < AT_ONCE_S
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.MISSING_KEY
    assert f"address/{ODD}" in finding.step
    if body is not one_alone_has_a_thread:
        assert finding.culprits == (ODD,)


def set_late_by_a_timer(rank: RankContext) -> None:
    if rank.index == ODD:
        threading.Timer(LATE_S, rank.store.set, args=("late", "yes")).start()
    thread = threading.Thread(target=rank.store.get, args=("late",))
    thread.start()
    thread.join()
    dist.barrier()


def set_late_by_a_rank(rank: RankContext) -> None:
    if rank.index == ODD:
        time.sleep(LATE_S)
        rank.store.set("late", "yes")
    thread = threading.Thread(target=rank.store.get, args=("late",))
    thread.start()
    thread.join()
    dist.barrier()


def joined_for_a_while(rank: RankContext) -> None:
    """Who gives up waiting for its thread sets what that waits for."""
    thread = threading.Thread(target=rank.store.get, args=(f"own/{rank.index}",))
    thread.start()
    thread.join(LATE_S)
    assert thread.is_alive()
    rank.store.set(f"own/{rank.index}", "yes")
    thread.join()


def one_thread_in_turn(rank: RankContext) -> None:
    """The main thread waits for one that will go on, beside one that waits for what is set in the end."""
    last = threading.Thread(target=rank.store.get, args=("last",))
    last.start()
    computing = threading.Thread(target=time.sleep, args=(LATE_S,))
    computing.start()
    computing.join()
    dist.barrier()
    rank.store.set("last", "yes")
    last.join()


def one_of_two_gives_up(rank: RankContext) -> None:
    """And sets what the other one waits for then."""
    late = f"late/{rank.index}"

    def give_up() -> None:
        with pytest.raises(RuntimeError):
            rank.store.wait(["never"], timedelta(seconds=2 * LATE_S))
        rank.store.set(late, "yes")

    threads = [threading.Thread(target=rank.store.get, args=(late,)), threading.Thread(target=give_up)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "body",
    [one_of_two_gives_up, set_late_by_a_timer, set_late_by_a_rank, joined_for_a_while, one_thread_in_turn],
    ids=lambda body: body.__name__,
)
def test_threads_that_will_go_on_are_left_alone(fresh: World, body: Body) -> None:
    outcome = fresh.run_job(Job(body, with_context=True), deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
