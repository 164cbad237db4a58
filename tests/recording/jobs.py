"""Jobs of a few real processes, none of them ours, that record themselves; and what becomes of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from rankdrill.explain.explanation import Explanation
from rankdrill.explain.recording import explain_recording

__all__ = ["Job", "await_that", "explained", "job"]

PATIENCE_S = 60.0
Body = Callable[..., Any]


class Job:
    """`ranks` processes that each run `body(rank, *args)`, recorded in `directory`, once a gloo group is made."""

    def __init__(self, body: Body, ranks: int, directory: Path, *args: Any, first: Body | None = None) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(["tests.recording.on_rank"])
        place = directory.parent / f"{directory.name}.job"
        place.mkdir()
        self.directory = directory
        from tests.recording.on_rank import play

        self.ranks: list[ForkServerProcess] = [
            context.Process(target=play, args=(body, rank, ranks, str(directory), str(place), args, first))
            for rank in range(ranks)
        ]
        for rank in self.ranks:
            rank.start()

    def wait(self) -> list[int | None]:
        """For all of them to end; returns their exit codes."""
        until = time.monotonic() + PATIENCE_S
        left = {rank.sentinel for rank in self.ranks}
        while left and time.monotonic() < until:
            left -= set(connection.wait(left, 0.1))
        for rank in self.ranks:
            rank.join(0)
        return [rank.exitcode for rank in self.ranks]

    def kill(self, ranks: Sequence[int] | None = None) -> None:
        """End them as a machine that is reset does."""
        chosen = self.ranks if ranks is None else [self.ranks[each] for each in ranks]
        # None of them has the time to see another go.
        for how in (signal.SIGSTOP, signal.SIGKILL):
            for rank in chosen:
                if rank.pid is not None and rank.exitcode is None:
                    os.kill(rank.pid, how)
        for rank in chosen:
            rank.join()


@contextmanager
def job(body: Body, ranks: int, directory: Path, *args: Any, first: Body | None = None) -> Iterator[Job]:
    """A job that is killed at the end."""
    made = Job(body, ranks, directory, *args, first=first)
    try:
        yield made
    finally:
        made.kill()


def await_that(holds: Callable[[], bool], what: str) -> None:
    """Wait until `holds`, which is `what` in words."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"after {PATIENCE_S:.0f} s it is not so that {what}"
        time.sleep(0.02)


def explained(directory: Path, enough: Callable[[Explanation], bool]) -> Explanation:
    """What is explained of a job that runs, once it is `enough`."""
    found: list[Explanation] = []

    def asked() -> bool:
        if not any(directory.glob("*.ledger")):
            return False
        found.append(explain_recording(directory))
        return enough(found[-1])

    await_that(asked, "the explanation is enough")
    return found[-1]
