"""A copy of a rank is waited for as long as it computes: on a busy machine that takes longer than a second."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from rankdrill.boundary.orders.copies import COPY_S, MOST_WAITS, speaks

fork = multiprocessing.get_context("fork")


@contextmanager
def child(does: Callable[[Connection], None]) -> Iterator[tuple[Connection, int]]:
    heard, told = Pipe(duplex=False)
    process = fork.Process(target=does, args=(told,), daemon=True)
    process.start()
    told.close()
    try:
        yield heard, process.pid or 0
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        heard.close()


def spin(_: Connection) -> None:
    while True:
        pass


def computes(told: Connection) -> None:
    """Half of what it may, at one processor that others want too, three times as often as it gets it."""
    while time.process_time() < COPY_S / 2:
        pass
    told.send_bytes(b"done")


def waits(_: Connection) -> None:
    time.sleep(600)


def test_a_copy_that_others_keep_from_computing_is_waited_for() -> None:
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})
    try:
        with child(spin), child(spin), child(spin), child(computes) as (heard, pid):
            os.sched_setaffinity(0, mine)
            began = time.monotonic()
            assert speaks(heard, pid)
            assert time.monotonic() - began > COPY_S
            assert heard.recv_bytes() == b"done"
    finally:
        os.sched_setaffinity(0, mine)


def test_a_copy_that_waits_or_computes_without_end_is_given_up() -> None:
    for does in (waits, spin):
        with child(does) as (heard, pid):
            began = time.monotonic()
            assert not speaks(heard, pid)
            assert time.monotonic() - began < (MOST_WAITS + 1) * COPY_S


def test_a_copy_that_has_ended_says_nothing_more() -> None:
    with child(lambda told: None) as (heard, pid):
        assert speaks(heard, pid)  # that it is over
