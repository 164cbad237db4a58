"""What the source says of two threads that issue on one group: nothing orders them, or something may."""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.diagnosis.calls.own_threads import goes_on_beside, unordered_threads
from rankdrill.ledger import LedgerReader, LedgerWriter, State
from rankdrill.step import HANDED_OVER, Kind, Site, Step

Program = Callable[..., Any]
ONE = torch.ones(1)


def line_of(function: Program, mark: str) -> int:
    lines, first = inspect.getsourcelines(function)
    (found,) = [number for number, text in enumerate(lines, first) if text.rstrip().endswith(f"# {mark}")]
    return found


def goes_on(function: Program) -> bool:
    """With what lines say that they do: `handed` over `there`, and then `here`."""

    def line(mark: str) -> int:
        return line_of(function, mark)

    file, name = inspect.getfile(function), function.__name__
    started = Site(file, line("handed"), name, HANDED_OVER)
    return goes_on_beside(Site(file, line("there"), "report", caller=started), Site(file, line("here"), name))


def started_and_left_alone(seconds: float) -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there

    reporter = threading.Thread(target=report)
    reporter.start()  # handed
    time.sleep(seconds)
    dist.barrier()  # here
    reporter.join()


def in_rounds(steps: int) -> None:
    def report() -> None:
        for _ in range(steps):
            dist.all_reduce(ONE)  # there

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()  # handed
    for _ in range(steps):
        dist.all_reduce(ONE)  # here
    reporter.join()


def until_it_is_told_to_stop(stop: threading.Event) -> None:
    def report() -> None:
        while not stop.wait(1.0):
            dist.all_reduce(ONE)  # there

    threading.Thread(target=report).start()  # handed
    dist.all_reduce(ONE)  # here
    stop.set()


def handed_to_a_pool(pool: ThreadPoolExecutor, settings: dict[str, float]) -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there

    done = pool.submit(report)  # handed
    dist.all_reduce(ONE * settings.get("weight", 1.0))  # here
    done.result()


@pytest.mark.parametrize("function", [started_and_left_alone, in_rounds, until_it_is_told_to_stop, handed_to_a_pool])
def test_nothing_orders_them(function: Program) -> None:
    assert goes_on(function)


def joined_first() -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there

    reporter = threading.Thread(target=report)
    reporter.start()  # handed
    reporter.join()
    dist.all_reduce(ONE)  # here


def told_that_it_is_done(done: threading.Event) -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there
        done.set()

    threading.Thread(target=report).start()  # handed
    done.wait()
    dist.all_reduce(ONE)  # here


def tells_when_it_is_its_turn(done: threading.Event) -> None:
    def report() -> None:
        done.wait()
        dist.all_reduce(ONE)  # there

    threading.Thread(target=report).start()  # handed
    dist.all_reduce(ONE)  # here
    done.set()


def has_it_take_work(work: queue.Queue[torch.Tensor]) -> None:
    def report() -> None:
        dist.all_reduce(work.get())  # there

    threading.Thread(target=report).start()  # handed
    dist.all_reduce(ONE)  # here
    work.put(ONE)


def looks_again_and_again(seen: list[int]) -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there
        seen.append(1)

    threading.Thread(target=report).start()  # handed
    while not seen:
        time.sleep(0.01)
    dist.all_reduce(ONE)  # here


def gone_through_as_they_are_done(pool: ThreadPoolExecutor) -> None:
    def report(step: int) -> None:
        dist.all_reduce(ONE * step)  # there

    for done in pool.map(report, range(3)):  # handed
        print(done)
    dist.all_reduce(ONE)  # here


def asked_whether_it_failed(pool: ThreadPoolExecutor) -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there

    if pool.submit(report).exception() is None:  # handed
        dist.all_reduce(ONE)  # here


def settle(reporter: threading.Thread) -> None:
    reporter.join()


def has_a_function_wait() -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there

    reporter = threading.Thread(target=report)
    reporter.start()  # handed
    settle(reporter)
    dist.all_reduce(ONE)  # here


def was_there_before() -> None:
    def report() -> None:
        dist.all_reduce(ONE)  # there

    dist.all_reduce(ONE)  # here
    threading.Thread(target=report).start()  # handed


@pytest.mark.parametrize(
    "function",
    [
        joined_first,
        told_that_it_is_done,
        tells_when_it_is_its_turn,
        has_it_take_work,
        looks_again_and_again,
        gone_through_as_they_are_done,
        asked_whether_it_failed,
        has_a_function_wait,
        was_there_before,
    ],
)
def test_something_may_order_them(function: Program) -> None:
    assert not goes_on(function)


def test_where_there_is_no_source_nothing_is_said() -> None:
    started = Site("nowhere.py", 3, "train", HANDED_OVER)
    assert not goes_on_beside(Site("nowhere.py", 9, "report", caller=started), Site("nowhere.py", 5, "train"))
    assert not goes_on_beside(Site("nowhere.py", 9, "report"), Site("nowhere.py", 5, "train"))


def in_each_round(steps: int) -> None:
    for _ in range(steps):
        dist.all_reduce(ONE)  # here
        reporter = threading.Thread(target=dist.barrier)
        reporter.start()  # handed


def test_who_came_round_before_the_thread_did_is_beside_it(tmp_path: Path) -> None:
    """Both wait for ever in what all have come to: the backend has got the two in another order on another rank."""
    here, handed = (line_of(in_each_round, mark) for mark in ("here", "handed"))
    file, name = inspect.getfile(in_each_round), in_each_round.__name__
    with LedgerWriter(tmp_path / "ledger", rank=0, world_size=1) as writer:

        def call(number: int, op: str, site: Site) -> int:
            return writer.begin(Step(Kind.COLLECTIVE, op, "default", sequence=number, site=site))

        writer.mark(call(0, "all_reduce", Site(file, here, name)), State.ENDED)
        writer.mark(call(1, "all_reduce", Site(file, here, name)), State.WAITING)
        beside = threading.Thread(target=call, args=(2, "barrier", Site(file, handed, name, HANDED_OVER)))
        beside.start()
        beside.join()
    found = unordered_threads({0: LedgerReader(tmp_path / "ledger").view()})
    assert found is not None
    assert found.culprits == (0,)
