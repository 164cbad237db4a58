"""Ranks that wait for a thread of their own, and none will wake them: told long before any deadline; others are not."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import rpc

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.errors import RankStuck

DEADLINE_S = 90.0  # which nobody comes to who is told at once
AT_ONCE_S = 30.0
LATE_S = 1.5  # longer than anybody is left alone before it is asked
ODD = 1


def from_an_empty_queue() -> None:
    if dist.get_rank() == ODD:
        queue.Queue[int]().get()
    dist.all_reduce(torch.ones(1))


def for_an_event() -> None:
    if dist.get_rank() == ODD:
        threading.Event().wait()
    dist.barrier()


def for_a_thread_that_waits_itself() -> None:
    if dist.get_rank() == ODD:
        waiting = threading.Thread(target=threading.Event().wait, daemon=True)
        waiting.start()
        waiting.join()
    dist.barrier()


def for_a_lock_that_a_thread_has_kept() -> None:
    lock = threading.Lock()
    if dist.get_rank() == ODD:
        keeper = threading.Thread(target=lock.acquire)
        keeper.start()
        keeper.join()
        with lock:
            pass
    dist.barrier()


@pytest.mark.parametrize(
    "body",
    [from_an_empty_queue, for_an_event, for_a_thread_that_waits_itself, for_a_lock_that_a_thread_has_kept],
    ids=lambda body: body.__name__,
)
def test_who_sleeps_for_good_is_told_at_once(four: World, body: Callable[[], None]) -> None:
    outcome = four.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < AT_ONCE_S
    assert (outcome.culprits, outcome.victims) == ((ODD,), (0, 2, 3))
    told = outcome.describe(ODD)
    assert "rank 1 sleeps for good, waiting to be woken by another of its threads, and none will, at " in told
    assert "deadline" not in told
    with pytest.raises(ExceptionGroup) as failed:
        outcome.unwrap()
    assert failed.group_contains(RankStuck)


def test_one_that_is_alone_with_itself(two: World) -> None:
    """The others have come to their end."""

    def body() -> None:
        if dist.get_rank() == ODD:
            queue.Queue[int]().get()

    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < AT_ONCE_S
    assert (outcome.culprits, outcome.victims) == ((ODD,), ())


def test_a_lock_that_is_taken_twice(two: World) -> None:
    def body() -> None:
        lock, seen = threading.Lock(), list[int]()

        def note(value: int) -> None:
            with lock:
                seen.append(value)

        if dist.get_rank() == ODD:
            with lock:
                note(1)
        dist.barrier()

    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.elapsed < AT_ONCE_S
    (finding,) = outcome.findings
    assert (finding.kind, finding.culprits) == (FindingKind.STUCK_RANK, (ODD,))


def woken_by_a_timer() -> None:
    event = threading.Event()
    threading.Timer(LATE_S, event.set).start()
    event.wait()


def woken_by_a_signal() -> None:
    event = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: event.set())
    signal.setitimer(signal.ITIMER_REAL, LATE_S)
    event.wait()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def woken_by_a_process() -> None:
    event = threading.Event()
    signal.signal(signal.SIGUSR2, lambda *_: event.set())
    code = f"import os, signal, time; time.sleep({LATE_S}); os.kill(os.getppid(), signal.SIGUSR2)"
    with subprocess.Popen([sys.executable, "-c", code]):
        event.wait()
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def woken_by_a_future() -> None:
    """Of torch's: a thread of C++ calls back once the last has come."""
    if dist.get_rank() == 0:
        time.sleep(LATE_S)
    event = threading.Event()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert work is not None
    work.get_future().then(lambda _: event.set())
    event.wait()


def woken_by_a_thread_that_computes() -> None:
    numbers = queue.Queue[int]()

    def produce() -> None:
        until = time.monotonic() + LATE_S
        while time.monotonic() < until:
            pass
        numbers.put(1)

    threading.Thread(target=produce).start()
    numbers.get()


def gives_up_by_itself() -> None:
    assert not threading.Event().wait(LATE_S)
    with pytest.raises(queue.Empty):
        queue.Queue[int]().get(timeout=LATE_S)


@pytest.mark.parametrize(
    "body",
    [
        woken_by_a_timer,
        woken_by_a_signal,
        woken_by_a_process,
        woken_by_a_future,
        woken_by_a_thread_that_computes,
        gives_up_by_itself,
    ],
    ids=lambda body: body.__name__,
)
def test_who_will_be_woken_is_left_alone(two: World, body: Callable[[], None]) -> None:
    outcome = two.run(body, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()


def woken_by_rpc(meeting: str, slow: bool) -> None:
    """By what another rank calls here, on a thread of C++: late, or long in doing it."""
    me = dist.get_rank()
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{meeting}")
    rpc.init_rpc(f"rank{me}", rank=me, world_size=dist.get_world_size(), rpc_backend_options=options)  # type: ignore[no-untyped-call]
    if me == ODD:
        CALLED.wait()
    else:
        time.sleep(0 if slow else LATE_S)
        rpc.rpc_async(f"rank{ODD}", call, args=(LATE_S if slow else 0.0,))
    dist.barrier()
    rpc.shutdown()


CALLED = threading.Event()


def call(pause_s: float) -> None:
    time.sleep(pause_s)
    CALLED.set()


@pytest.mark.parametrize("slow", [False, True])
def test_who_is_called_by_another_rank_is_left_alone(tmp_path: Path, slow: bool) -> None:
    with World(2) as world:
        outcome = world.run(woken_by_rpc, str(tmp_path / "meeting"), slow, deadline=DEADLINE_S)
    assert outcome.ok, outcome.summary()
