"""Worlds from two ranks to 128: one culprit among them is named, and long before the deadline.

Of every kind of mistake there is a program in tests/catalogue/scaled.py.
"""

from __future__ import annotations

import os
import random
import signal
import stat
import time
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.ledger import LedgerReader, State
from rankdrill.worlds import Outcome, Status, Verdict
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from rankdrill.worlds.processes.rendezvous import MESH_RANKS, connecting_when_needed
from rankdrill.worlds.world import DEADLINE_S
from tests.torch_can import Can, needs

EARLY = 20.0  # well before the deadline, on the busiest machine
SHORT = 2.0  # a deadline that has to be waited for: a rank that runs may still come


LARGER = [pytest.param(ranks, marks=pytest.mark.nightly) for ranks in (40, 128)]


@pytest.fixture(scope="module", params=[2, 24, *LARGER])
def many(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param) as world:
        yield world


def culprit_of(world: World) -> int:
    """Neither the first nor, where there are more than two, the last."""
    return world.n * 2 // 3


def run(world: World, act: Callable[[], None], deadline: float = DEADLINE_S) -> Outcome:
    """All ranks all_reduce, then one does `act` instead of, or in, the next all_reduce."""
    culprit = culprit_of(world)

    def body() -> None:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert float(tensor) == dist.get_world_size()
        if dist.get_rank() == culprit:
            act()
        else:
            dist.all_reduce(tensor)

    return world.run(body, deadline=deadline)


def others(world: World, culprit: int) -> tuple[int, ...]:
    return tuple(rank for rank in range(world.n) if rank != culprit)


def test_one_that_skips_the_collective(many: World) -> None:
    """The last one; it has used no group yet, and left no word of who is in any."""
    last = many.n - 1

    def body() -> None:
        if dist.get_rank() != last:
            dist.all_reduce(torch.ones(1))

    outcome = many.run(body)
    assert outcome.verdict is Verdict.HANG
    if many.n > 2:  # one against one, neither is blamed alone
        assert outcome.culprits == (last,)
        assert outcome.victims == others(many, last)
    assert f": rank {last} leaves out all_reduce #" in outcome.summary()
    assert outcome.elapsed < EARLY


def test_one_that_raises_before_it(many: World) -> None:
    def act() -> None:
        raise KeyError("weights")

    outcome = run(many, act)
    assert (outcome.verdict, outcome.culprits) == (Verdict.HANG, (culprit_of(many),))
    assert isinstance(outcome.ranks[culprit_of(many)].error, KeyError)
    assert outcome.victims == others(many, culprit_of(many))
    assert outcome.elapsed < EARLY


def test_one_that_is_killed_inside_it(many: World) -> None:
    """Another rank, which never comes itself, sees it wait, and kills it."""
    culprit = culprit_of(many)
    absent = (culprit + 1) % many.n

    def body(context: RankContext) -> None:
        dist.all_reduce(torch.ones(1))
        if context.index != absent:
            dist.all_reduce(torch.ones(1))
            return
        ledger = LedgerReader(context.directory / f"rank-{culprit}.ledger")
        inside = [State.ENDED, State.WAITING]
        while [record.state for record in ledger.view() if record.step.op == "all_reduce"] != inside:
            time.sleep(0.01)
        os.kill(ledger.pid, signal.SIGKILL)
        time.sleep(1000)

    outcome = many.run_job(Job(body, with_context=True))
    assert (outcome.verdict, outcome.culprits) == (Verdict.DIED, (culprit,))
    assert outcome.ranks[culprit].step is not None
    assert f"rank {culprit} killed by SIGKILL in collective.all_reduce" in outcome.summary()
    assert outcome.victims == others(many, culprit)
    assert outcome.elapsed < EARLY


def test_one_that_is_stuck_outside(many: World) -> None:
    """It may still come, so the deadline is waited for; then it alone is to blame, and its stack says where it was."""
    outcome = run(many, lambda: time.sleep(1000), deadline=SHORT)
    culprit = outcome.ranks[culprit_of(many)]
    assert (outcome.verdict, outcome.culprits) == (Verdict.HANG, (culprit.rank,))
    assert outcome.victims == others(many, culprit.rank)
    assert "still running at the deadline" in outcome.summary()
    assert "in body" in culprit.stack
    assert outcome.elapsed < EARLY


@pytest.mark.parametrize("shape", ["even", "irregular"])
def test_one_that_skips_a_collective_of_a_group(many: World, shape: str) -> None:
    """Who is no member waits for nothing, and is waited for by nobody."""
    skips_in_a_group(many, shape)


def skips_in_a_group(many: World, shape: str) -> None:
    """Half of the ranks are in a group, the last of which skips."""
    everyone = range(many.n)
    members = sorted(random.Random(0).sample(everyone, many.n // 2) if shape == "irregular" else everyone[::2])
    culprit = members[-1]

    def body() -> None:
        group = dist.new_group(members)
        if dist.get_rank() in members and dist.get_rank() != culprit:
            dist.all_reduce(torch.ones(1), group=group)

    outcome = many.run(body)
    if len(members) == 1:
        assert outcome.ok
        return
    assert (outcome.verdict, outcome.culprits) == (Verdict.HANG, (culprit,))
    assert outcome.victims == tuple(members[:-1])
    returned = [rank.rank for rank in outcome.ranks if rank.status is Status.RETURNED]
    assert returned == [rank for rank in everyone if rank not in members[:-1]]
    assert outcome.elapsed < EARLY
    assert [group.ranks() for group in outcome.ranks[members[0]].ledger.groups] == [tuple(members)]


def sockets_after_init() -> int:
    return sum(stat.S_ISSOCK(os.fstat(int(fd)).st_mode) for fd in os.listdir("/proc/self/fd") if _is_open(int(fd)))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:  # the one that the listing itself had
        return False
    return True


def test_in_a_large_world_ranks_are_connected_when_they_first_speak() -> None:
    needs(Can.CONNECT_LATER)
    with World(MESH_RANKS + 1) as world:
        assert max(world.run(sockets_after_init).unwrap()) < MESH_RANKS // 2
    with World(MESH_RANKS // 4) as world:
        assert min(world.run(sockets_after_init).unwrap()) >= world.n - 1, "each to each, as torch itself does it"


def test_who_has_chosen_how_ranks_connect_keeps_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_GLOO_LAZY_INIT", "0")
    with connecting_when_needed():
        assert os.environ["TORCH_GLOO_LAZY_INIT"] == "0"
    assert os.environ["TORCH_GLOO_LAZY_INIT"] == "0"
    monkeypatch.delenv("TORCH_GLOO_LAZY_INIT")
    with connecting_when_needed():
        assert os.environ["TORCH_GLOO_LAZY_INIT"] == "1"
    assert "TORCH_GLOO_LAZY_INIT" not in os.environ
