"""Ranks that come late, wait in other ways, or get over an error: nothing is wrong with any of them."""

from __future__ import annotations

import fcntl
import json
import os
import queue
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.catalogue.programs import Rank, correct


@correct(ranks=4)
def a_straggler(rank: Rank) -> None:
    if rank.index == 2:
        time.sleep(2)
    dist.barrier()


@correct(ranks=3)
def one_computes_for_long(rank: Rank) -> None:
    dist.all_reduce(torch.ones(1))
    if rank.index == 0:
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            torch.ones(64, 64) @ torch.ones(64, 64)
    dist.all_reduce(torch.ones(1))


@correct(ranks=2)
def one_waits_in_another_thread(rank: Rank) -> None:
    loaded: queue.Queue[int] = queue.Queue()
    if rank.index == 0:
        threading.Timer(0.5, loaded.put, args=(7,)).start()
    else:
        loaded.put(7)
    value = torch.tensor([loaded.get()])
    dist.all_reduce(value)
    assert value.item() == 14


@correct(ranks=4)
def a_barrier_through_the_store(rank: Rank) -> None:
    if rank.store.add("arrived", 1) == 4:
        rank.store.set("all arrived", "yes")
    rank.store.wait(["all arrived"])
    dist.barrier()


@correct(ranks=3)
def a_key_that_comes_late(rank: Rank) -> None:
    if rank.index == 2:
        time.sleep(1)
        rank.store.set("vocabulary", json.dumps(["a", "b"]))
    assert json.loads(rank.store.get("vocabulary")) == ["a", "b"]
    dist.barrier()


@correct(ranks=3)
def keys_of_all_neighbours(rank: Rank) -> None:
    rank.store.set(f"port/{rank.index}", str(29500 + rank.index))
    assert int(rank.store.get(f"port/{(rank.index + 1) % 3}")) == 29500 + (rank.index + 1) % 3
    dist.barrier()


@correct(ranks=2)
def looked_for_without_waiting(rank: Rank) -> None:
    """Nobody ever sets the key; nobody waits for it either."""
    while not rank.store.check(["go"]):
        if rank.index == 1 or rank.store.check(["stop"]):
            break
        rank.store.set("stop", "yes")
    dist.barrier()


@correct(ranks=3)
def a_key_asked_for_with_a_timeout(rank: Rank) -> None:
    if rank.index == 1:
        try:
            rank.store.wait(["override"], timedelta(milliseconds=300))
        except RuntimeError:
            pass
        else:
            raise AssertionError("nobody has set it")
    dist.all_reduce(torch.ones(2))


@correct(ranks=4)
def counted_by_the_store(rank: Rank) -> None:
    for _ in range(10):
        rank.store.add("samples", rank.index)
    dist.barrier()
    assert rank.store.add("samples", 0) == 60
    dist.barrier()


@correct(ranks=3)
def swapped_until_it_holds(rank: Rank) -> None:
    rank.store.compare_set("finished", "", "[]")
    dist.barrier()
    while True:
        before = rank.store.get("finished").decode()
        after = json.dumps([*json.loads(before), rank.index])
        if rank.store.compare_set("finished", before, after).decode() == after:
            break
    dist.barrier()
    assert sorted(json.loads(rank.store.get("finished"))) == [0, 1, 2]
    dist.barrier()


@correct(ranks=2)
def got_and_set_by_one_at_a_time(rank: Rank) -> None:
    if rank.index == 0:
        rank.store.set("seen", "0")
    dist.barrier()
    for turn in range(4):
        if turn % 2 == rank.index:
            rank.store.set("seen", str(int(rank.store.get("seen")) + 1))
        dist.barrier()
    assert int(rank.store.get("seen")) == 4
    dist.barrier()


@correct(ranks=3)
def a_file_lock_one_after_the_other(rank: Rank) -> None:
    with (rank.directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(0.05)
    dist.barrier()


@correct(ranks=3)
def a_lock_held_in_a_collective(rank: Rank) -> None:
    """Each rank has its own lock, and no other thread wants it."""
    lock = threading.Lock()
    with lock:
        dist.all_reduce(torch.ones(2))
    assert not lock.locked()


@correct(ranks=4)
def a_file_that_one_writes_and_all_await(rank: Rank) -> None:
    ready = rank.directory / "ready"
    if rank.index == 3:
        time.sleep(0.5)
        ready.touch()
    while not ready.exists():
        time.sleep(0.01)
    dist.barrier()


@correct(ranks=3)
def a_missing_file_is_no_error(rank: Rank) -> None:
    resume = torch.zeros(1)
    try:
        resume += len((rank.directory / f"checkpoint-{rank.index}").read_text())
    except FileNotFoundError:
        resume -= 1
    dist.all_reduce(resume)
    assert resume.item() == -3


@correct(ranks=2)
def tried_again_after_an_error(rank: Rank) -> None:
    parts = [torch.zeros(2) for _ in range(2)]
    if rank.index == 0:
        try:
            dist.all_gather(parts[:1], torch.ones(2))
        except (RuntimeError, ValueError):
            pass
        else:
            raise AssertionError("a list that is too short is taken")
    dist.all_gather(parts, torch.ones(2))
    assert sum(part.sum().item() for part in parts) == 4


@correct(ranks=4)
def failed_together(rank: Rank) -> None:
    """One rank's error is everybody's, by agreement."""
    problem = "disk is full" if rank.index == 2 else None
    everyones: list[Any] = [None] * 4
    dist.all_gather_object(everyones, problem)
    assert [each for each in everyones if each] == ["disk is full"]
    dist.barrier()


@correct(ranks=3)
def an_error_in_a_finished_thread(rank: Rank) -> None:
    failed: list[BaseException] = []

    def load() -> None:
        try:
            raise OSError("prefetch")
        except OSError as error:
            failed.append(error)

    if rank.index == 1:
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
    dist.all_reduce(torch.ones(1))
    assert len(failed) == (rank.index == 1)


@correct(ranks=3)
def a_monitored_barrier(rank: Rank) -> None:
    time.sleep(0.2 * rank.index)
    dist.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)
    dist.all_reduce(torch.ones(1))


@correct(ranks=2)
def a_child_process_that_fails(rank: Rank) -> None:
    if rank.index == 0:
        child = os.fork()
        if child == 0:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    dist.barrier()


@correct(ranks=2)
def one_is_done_much_earlier(rank: Rank) -> None:
    dist.barrier()
    if rank.index == 0:
        return
    time.sleep(1)


@correct(ranks=3)
def a_lock_held_in_a_collective_for_long(rank: Rank) -> None:
    """The thread that waits for the lock wants it only to write a line."""
    lock, written = threading.Lock(), list[int]()

    def write() -> None:
        with lock:
            written.append(rank.index)

    writer = threading.Thread(target=write)
    with lock:
        writer.start()
        time.sleep(0.5 * rank.index)
        dist.all_reduce(torch.ones(1))
    writer.join()
    assert written == [rank.index]


@correct(ranks=3)
def a_lock_that_a_thread_may_take_again(rank: Rank) -> None:
    lock, seen = threading.RLock(), list[int]()

    def note(step: int) -> None:
        with lock:
            seen.append(step)

    for step in range(3):
        with lock:
            note(step)
        dist.barrier()
    assert seen == [0, 1, 2]
