"""Ranks that wait at a store for others, in its barrier or as it is made: who has not come is found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.utils.distributed import create_c10d_store

from rankdrill import Outcome, Plan, World
from rankdrill.diagnosis import Finding
from rankdrill.worlds.context import RankContext
from rankdrill.worlds.job import Job
from tests.catalogue.mistakes.meetings import free_port
from tests.torch_can import Can, needs

DEADLINE_S = 60.0
AT_ONCE_S = 30.0  # well before the deadline, on whatever machine
SOON_S = 4.0  # a deadline for what nobody can be certain of


@dataclass(frozen=True)
class Rank:
    """One of a run whose store has nothing in it yet: that of a world keeps what runs before have put there."""

    index: int
    store: Any  # torch's stubs know no barrier of it


Body = Callable[[Rank], object]


def run(world: World, body: Body, plan: Plan | None = None, deadline: float = DEADLINE_S) -> Outcome:
    job = Job(_in_a_store_of_its_own, (uuid4().hex, body), with_context=True, plan=plan)
    return world.run_job(job, deadline=deadline)


def _in_a_store_of_its_own(context: RankContext, name: str, body: Body) -> object:
    return body(Rank(context.index, PrefixStore(name, context.store)))


def finding(outcome: Outcome) -> Finding:
    assert outcome.elapsed < AT_ONCE_S, "a hang that is certain need not be waited for"
    (found,) = outcome.findings
    return found


def joined(rank: Rank, port: int, size: int = 4, **more: Any) -> Any:
    """A store of all ranks, that the first of them serves."""
    return dist.TCPStore("127.0.0.1", port, size, rank.index == 0, timedelta(seconds=10 * DEADLINE_S), **more)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _barriers(request: pytest.FixtureRequest) -> None:
    if "barrier" in request.node.name:
        needs(Can.MEET_AT_STORES)


def test_a_barrier_that_one_leaves_out(four: World) -> None:
    def body(rank: Rank) -> None:
        if rank.index != 2:
            rank.store.barrier("loaded", 4)

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing call", (2,))
    leaves, past, now, others = found.sides
    assert leaves.did.startswith("leaves out store.barrier on ")
    assert past.did == "goes past it by `if rank.index != 2`"
    assert now.did == "returned"
    assert others.ranks == (0, 1, 3)
    assert others.did.endswith("(3 of 4 have come)")


def test_of_a_barrier_of_two_among_four_only_those_are_asked_that_came_to_it_before(four: World) -> None:
    def body(rank: Rank) -> None:
        for step in range(3):
            if rank.index < 2 and not (step == 2 and rank.index == 1):
                rank.store.barrier(f"step/{step}", 2)

    found = finding(run(four, body))
    assert found.kind == "missing call"
    assert found.sides[0].ranks == (1,)


def test_who_has_gone_past_a_barrier_by_its_number_left_it_out(two: World) -> None:
    def body(rank: Rank) -> None:
        for step in range(6):
            if step != 3 or rank.index == 0:
                rank.store.barrier(f"step/{step}", 2)

    found = finding(run(two, body))
    assert (found.kind, found.culprits) == ("missing call", (1,))
    assert found.step.endswith("/step/3'")


def test_two_at_a_barrier_each(two: World) -> None:
    def body(rank: Rank) -> None:
        rank.store.barrier(f"of/{rank.index}", 2)

    found = finding(run(two, body))
    assert (found.kind, found.culprits) == ("missing key", ())
    assert {rank for side in found.sides for rank in side.ranks} == {0, 1}


def test_a_barrier_of_more_than_there_are(four: World) -> None:
    def body(rank: Rank) -> None:
        rank.store.barrier("all", 5)

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("size mismatch", ())
    (all_,) = found.sides
    assert all_.ranks == (0, 1, 2, 3)
    assert all_.did.startswith("wait for 5 ranks in store.barrier on ")
    assert all_.did.endswith("and there are 4")


@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_a_barrier_whose_ranks_count_differently_is_refused_whoever_comes_last(four: World, last: int) -> None:
    def body(rank: Rank) -> None:
        dist.barrier()
        time.sleep(0.1 * ((rank.index - last - 1) % 4))
        rank.store.barrier("all", 3 if rank.index == 1 else 4)

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("size mismatch", (1,))
    assert "3 ranks" in found.sides[0].did


def test_who_waits_for_a_key_is_at_fault_and_not_who_waits_for_it_at_a_barrier(four: World) -> None:
    def body(rank: Rank) -> None:
        if rank.index == 3:
            rank.store.get("never")
        rank.store.barrier("all", 4)

    found = finding(run(four, body))
    assert found.kind == "missing key"
    assert found.step.endswith("never") or "never" in str(found)


def test_a_rank_that_waits_for_what_is_set_after_a_barrier(two: World) -> None:
    def body(rank: Rank) -> None:
        if rank.index == 1:
            rank.store.get("go")
        rank.store.barrier("all", 2)
        rank.store.set("go", "1")

    found = finding(run(two, body))
    assert {rank for side in found.sides for rank in side.ranks} == {0, 1}


def test_a_barrier_that_gave_up(four: World) -> None:
    def body(rank: Rank) -> None:
        if rank.index != 0:
            rank.store.barrier("all", 4, timedelta(seconds=1))

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing call", (0,))


def test_a_barrier_in_another_thread(four: World) -> None:
    def body(rank: Rank) -> None:
        thread = threading.Thread(target=rank.store.barrier, args=("all", 4))
        thread.start()
        dist.barrier()
        thread.join()

    run(four, body).unwrap()


def test_a_barrier_that_a_plan_has_one_leave_out(four: World) -> None:
    def body(rank: Rank) -> None:
        rank.store.barrier("all", 4)

    outcome = run(four, body, Plan.parse("rank 1: skip at store.barrier"))
    assert not outcome.findings
    assert outcome.culprits == (1,)


def test_a_barrier_of_the_next_run_begins_anew(four: World) -> None:
    def body(rank: Rank) -> None:
        if rank.index:
            rank.store.barrier("all", 3)

    for _ in range(3):
        run(four, body).unwrap()


def test_a_store_that_one_does_not_join(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        if rank.index == 3:
            return
        joined(rank, port)
        dist.barrier()

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing call", (3,))
    assert "TCPStore on 'localhost:" in found.sides[0].did
    assert "3 of 4 have come" in found.sides[-1].did


def test_a_store_that_one_looks_for_elsewhere(four: World) -> None:
    """Nobody can be certain before the deadline: another process might serve it there."""

    def body(rank: Rank) -> None:
        port = free_port(rank)
        joined(rank, port + (rank.index == 2))
        dist.barrier()

    (found,) = run(four, body, deadline=SOON_S).findings
    assert (found.kind, found.culprits) == ("missing key", (2,))


def test_a_store_that_nobody_serves_yet(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        if rank.index == 0:
            rank.store.get("never")
        joined(rank, port)

    (found,) = run(four, body, deadline=SOON_S).findings
    assert found.kind == "missing key"
    assert "never" in str(found)
    assert "TCPStore on 'localhost:" in str(found)


def test_a_store_that_counts_one_too_many(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        joined(rank, port, 5)
        dist.barrier()

    found = finding(run(four, body))
    assert found.kind == "size mismatch"
    assert found.sides[0].did.startswith("waits for 5 ranks in TCPStore on ")


def test_a_store_made_again_at_its_old_port(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        for turn in range(2):
            store = joined(rank, port)
            store.add(f"came/{turn}", 1)
            dist.barrier()
            assert int(store.add(f"came/{turn}", 0)) == 4
            dist.barrier()
            del store
            dist.barrier()

    run(four, body).unwrap()


def test_a_store_that_is_refused_is_torchs_affair(two: World) -> None:
    def body(rank: Rank) -> None:
        with pytest.raises(TypeError):
            dist.TCPStore(29500)  # type: ignore[attr-defined, call-arg, arg-type]

    run(two, body).unwrap()


# ------------------------------------------------------------------------- as code that nobody here wrote has them


def test_two_stores_that_one_joins_in_the_other_order(four: World) -> None:
    """The others wait at the second already, where the one that is to serve it has not come: it is not at fault."""

    def body(rank: Rank) -> None:
        ports = [free_port(rank), free_port(Rank(rank.index, PrefixStore("second", rank.store)))]
        for port in ports if rank.index != 1 else ports[::-1]:
            joined(rank, port)

    (found,) = run(four, body, deadline=SOON_S).findings
    assert found.culprits == (1,)


def test_stores_joined_in_threads(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        thread = threading.Thread(target=lambda: joined(rank, port).barrier("up", 4))
        if rank.index != 2:
            thread.start()
            thread.join()
        dist.barrier()

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing call", (2,))
    assert "TCPStore on" in found.sides[0].did


def test_a_store_made_again_that_one_does_not_join_again(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        for _ in range(2):
            store = joined(rank, port)
            dist.barrier()
            del store
            dist.barrier()
            if rank.index == 3:
                break

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing call", (3,))
    assert "3 of 4 have come" in found.sides[-1].did


def test_a_store_that_torch_makes_for_who_asks_for_one(four: World) -> None:
    def body(rank: Rank) -> None:
        port = free_port(rank)
        if rank.index != 1:
            create_c10d_store(rank.index == 0, "127.0.0.1", port, 4, timeout=int(10 * DEADLINE_S))
        dist.barrier()

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing call", (1,))


def test_who_gave_up_a_barrier_too_early_is_told_by_its_error(two: World) -> None:
    """All came in the end: none has left anything out."""

    def body(rank: Rank) -> None:
        if rank.index == 1:
            time.sleep(1.5)
        rank.store.barrier("up", 2, timedelta(seconds=0.5))

    outcome = run(two, body)
    assert not outcome.findings
    assert 0 in outcome.culprits
    assert "Wait timeout" in outcome.summary()


def test_a_misspelt_barrier_is_told_with_all_that_were_on_their_way(four: World) -> None:
    def body(rank: Rank) -> None:
        if rank.index in (0, 3):
            time.sleep(0.4)  # when two wait for each other it is certain, and open who is at fault
        rank.store.barrier("inti" if rank.index == 1 else "init", 4)

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("missing key", (1,))
    assert found.sides[-1].ranks == (0, 2, 3)


@pytest.mark.parametrize("port_of", [free_port, lambda _rank: 0], ids=["a port", "any port"])
def test_who_served_a_store_and_left_is_named_and_not_those_that_lose_it(
    four: World, port_of: Callable[[Rank], int]
) -> None:
    def body(rank: Rank) -> None:
        port, first = port_of(rank), rank.index == 0
        if port or first:
            store = joined(rank, port, wait_for_workers=bool(port))
        if first:
            rank.store.set("served at", str(store.port))
            rank.store.wait([f"joined/{other}" for other in (1, 2, 3)])
            return
        if not port:
            store = joined(rank, int(rank.store.get("served at")), wait_for_workers=False)
        rank.store.set(f"joined/{rank.index}", "yes")
        store.get("what nobody sets")

    found = finding(run(four, body))
    assert (found.kind, found.culprits) == ("lost rank", (0,))
    assert "which it served, went with it" in found.sides[0].did
    assert found.sides[1].ranks == (1, 2, 3)
