"""Ranks that ask a store again and again: at the deadline it is told what they ask for, and who should have done it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from rankdrill import Outcome, World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job

DEADLINE_S = 3.0
PAUSE_S = 0.01
Body = Callable[[RankContext], None]


def run(world: World, body: Body, deadline: float = DEADLINE_S) -> Outcome:
    return world.run_job(Job(body, with_context=True), deadline=deadline)


class Lease:
    """Held by whoever has put its name there."""

    def __init__(self, store: Any, name: str, owner: str) -> None:
        self.store, self.name, self.owner = store, name, owner

    def acquire(self) -> None:
        while self.store.compare_set(self.name, "free", self.owner).decode() != self.owner:
            time.sleep(PAUSE_S)

    def release(self) -> None:
        self.store.set(self.name, "free")


def checks_for_a_key(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.set("weights_redy", "yes")
    else:
        while not rank.store.check(["weights_ready"]):
            time.sleep(PAUSE_S)
    dist.barrier()


def waits_a_little_each_time(rank: RankContext) -> None:
    if rank.index == 1:
        rank.store.set("weights_redy", "yes")
        return
    while True:
        try:
            rank.store.wait(["weights_ready"], timedelta(milliseconds=20))
            break
        except RuntimeError:
            time.sleep(PAUSE_S)


@pytest.mark.parametrize("body", [checks_for_a_key, waits_a_little_each_time], ids=lambda body: body.__name__)
def test_a_key_that_is_asked_for_again_and_again(fresh: World, body: Body) -> None:
    (finding,) = run(fresh, body).findings
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING_KEY, (1,))
    assert "weights_redy" in str(finding)


def two_leases_in_two_orders(rank: RankContext) -> None:
    if rank.index == 0:
        for name in "ab":
            rank.store.set(name, "free")
    dist.barrier()
    if rank.index in (1, 2):
        names = "ab" if rank.index == 1 else "ba"
        first, second = (Lease(rank.store, name, f"rank {rank.index}") for name in names)
        first.acquire()
        time.sleep(0.2)
        second.acquire()
    dist.barrier()


def kept_into_a_barrier(rank: RankContext) -> None:
    """One does not let go of it before it waits for the others."""
    lease = Lease(rank.store, "lease", f"rank {rank.index}")
    if rank.index == 3:
        rank.store.set("lease", "free")
        lease.acquire()
        rank.store.set("begun", "yes")
    else:
        rank.store.wait(["begun"])
        lease.acquire()
        lease.release()
    dist.barrier()


def test_two_that_have_what_the_other_asks_for(fresh: World) -> None:
    (finding,) = run(fresh, two_leases_in_two_orders).findings
    assert (finding.kind, finding.ranks) == (FindingKind.DEADLOCK, (1, 2))


def test_one_that_keeps_what_others_ask_for(fresh: World) -> None:
    (finding,) = run(fresh, kept_into_a_barrier).findings
    assert finding.kind is FindingKind.DEADLOCK
    assert 3 in finding.ranks


def left_with_a_lease(rank: RankContext) -> None:
    """One has ended with it, and one has never done anything."""
    lease = Lease(rank.store, "lease", f"rank {rank.index}")
    if rank.index == 0:
        rank.store.set("lease", "free")
        lease.acquire()
        rank.store.set("begun", "yes")
    elif rank.index == 1:
        rank.store.wait(["begun"])
        lease.acquire()


def test_who_asks_one_that_has_ended_is_told_of_without_a_finding(fresh: World) -> None:
    outcome = run(fresh, left_with_a_lease)
    assert not outcome.ok
    assert not outcome.findings


def asks_while_another_computes(rank: RankContext) -> None:
    if rank.index == 1:
        time.sleep(60.0)
        rank.store.set("weights_ready", "yes")
    while not rank.store.check(["weights_ready"]):
        time.sleep(PAUSE_S)


def test_who_asks_one_that_computes_is_not_at_fault(fresh: World) -> None:
    outcome = run(fresh, asks_while_another_computes)
    assert not outcome.findings
    assert 1 in outcome.culprits


def asks_until_it_is_there(rank: RankContext) -> None:
    if rank.index == 1:
        time.sleep(1.0)
        rank.store.set("weights_ready", "yes")
    while not rank.store.check(["weights_ready"]):
        time.sleep(PAUSE_S)
    dist.barrier()


def test_who_gets_an_answer_passes(fresh: World) -> None:
    outcome = run(fresh, asks_until_it_is_there, 60.0)
    assert outcome.ok, outcome.summary()
