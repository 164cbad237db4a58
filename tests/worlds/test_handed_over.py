"""What other threads call is told by the lines that handed it to them, where it was waited for, and where not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Status

DEADLINE_S = 30.0


def reads(odd: int = 1) -> None:
    if dist.get_rank() == odd:
        raise OSError("no such shard")


def reduces() -> None:
    with contextlib.suppress(OSError):
        reads()
        dist.all_reduce(torch.ones(2))  # left out


class Reducing(threading.Thread):
    def run(self) -> None:
        reduces()


def in_a_thread() -> None:
    thread = threading.Thread(target=reduces)
    thread.start()  # handed over
    thread.join()
    dist.barrier()


def in_a_thread_of_a_class() -> None:
    thread = Reducing()
    thread.start()  # handed over
    thread.join()
    dist.barrier()


def in_a_pool() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(reduces)  # handed over
    dist.barrier()


def in_a_pool_by_a_helper() -> None:
    def handed_to(pool: ThreadPoolExecutor) -> None:
        pool.submit(reduces)

    with ThreadPoolExecutor(1) as pool:
        handed_to(pool)  # handed over
    dist.barrier()


def by_asyncio() -> None:
    async def evaluated() -> None:
        await asyncio.to_thread(reduces)

    asyncio.run(evaluated())  # handed over
    dist.barrier()


WAITED = (in_a_thread, in_a_thread_of_a_class, in_a_pool, in_a_pool_by_a_helper, by_asyncio)


def name_of(body: object) -> str:
    return str(getattr(body, "__name__", body))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(3) as made:
        yield made


def found_in(world: World, body: Callable[[], None]) -> Finding:
    (finding,) = world.run(body, deadline=DEADLINE_S).findings
    return finding


@pytest.mark.parametrize("body", WAITED, ids=name_of)
def test_who_goes_on_when_its_thread_is_over_has_left_out_what_that_did_not_call(
    world: World, body: Callable[[], None]
) -> None:
    finding = found_in(world, body)
    assert (finding.kind, finding.culprits) == (FindingKind.MISSING, (1,))
    (site,) = finding.sides[0].sites
    assert site is not None
    assert site.function == "reduces"
    callers, outer = [], site.caller
    while outer is not None:
        callers.append(outer.function)
        outer = outer.caller
    assert body.__name__ in callers


def in_a_thread_beside() -> None:
    """Which of the two a rank comes to first nobody knows: nothing was left out."""
    met = threading.Event()

    def reduces_in_its_time() -> None:
        if dist.get_rank() == 1:
            met.wait(DEADLINE_S)
        dist.all_reduce(torch.ones(2))

    thread = threading.Thread(target=reduces_in_its_time, daemon=True)
    thread.start()
    if dist.get_rank() != 1:
        met.wait(0.3)
    try:
        dist.barrier()
    finally:
        met.set()
    thread.join()


def test_what_a_thread_may_still_come_to_was_not_left_out(world: World) -> None:
    finding = found_in(world, in_a_thread_beside)
    assert finding.kind is FindingKind.CALL_ORDERING


def holds_a_lock_where_it_starts_one() -> None:
    """The thread has not taken the lock, which is taken where it was started."""
    lock = threading.Lock()

    def waits() -> None:
        with lock:
            dist.barrier()

    with lock:
        thread = threading.Thread(target=waits)
        thread.start()
    thread.join()
    dist.all_reduce(torch.ones(1))


def test_a_thread_has_not_taken_the_locks_of_who_started_it(world: World) -> None:
    outcome = world.run(holds_a_lock_where_it_starts_one, deadline=DEADLINE_S)
    assert [rank.status for rank in outcome.ranks] == [Status.RETURNED] * 3


def starts_twice() -> tuple[str, list[int]]:
    seen: list[int] = []
    thread = threading.Thread(target=seen.append, args=(1,))
    own = threading.Thread(target=lambda: seen.append(2))
    for each in (thread, own):
        each.start()
        each.join()
    try:
        own.start()
    except RuntimeError as error:
        return str(error), seen
    return "", seen


def test_threads_start_once_as_ever(world: World) -> None:
    assert world.run(starts_twice).unwrap() == [("threads can only be started once", [1, 2])] * 3
