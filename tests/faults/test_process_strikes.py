"""Strikes that end, stop or hold up a process, on real ranks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from signal import SIGABRT, SIGKILL

import pytest

from rankdrill.worlds import Outcome, Status

BRIEF_S = 0.3


def rename_in(directory: str) -> str:
    """Write aside, then rename: three steps."""
    path = Path(directory, "a")
    path.with_suffix(".part").write_bytes(b"0123456789")
    os.replace(path.with_suffix(".part"), path)
    return path.read_text()


@pytest.mark.parametrize(
    ("strike", "signal", "code"),
    [("kill", SIGKILL, None), ("abort", SIGABRT, None), ("exit(3)", None, 3), ("exit", None, 1)],
)
def test_the_process_ends(
    strike: str, signal: int | None, code: int | None, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    rank = run(1, f"rank 0: {strike} before file.replace", rename_in, str(tmp_path)).ranks[0]
    assert rank.status is Status.DIED
    assert rank.death is not None
    assert (rank.death.signal, rank.death.code) == (signal, code)
    assert rank.fired == (1,)
    assert rank.step is not None
    assert rank.step.step.op == "replace"
    assert os.listdir(tmp_path) == ["a.part"]


def test_after_means_that_the_step_is_done(run: Callable[..., Outcome], tmp_path: Path) -> None:
    rank = run(1, "rank 0: kill after file.replace", rename_in, str(tmp_path)).ranks[0]
    assert rank.status is Status.DIED
    assert os.listdir(tmp_path) == ["a"]


def test_a_crash_between_write_and_rename(run: Callable[..., Outcome], tmp_path: Path) -> None:
    rank = run(1, 'rank 0: crash before file.replace on "*.part"', rename_in, str(tmp_path)).ranks[0]
    assert rank.death is not None
    assert rank.death.signal == SIGKILL
    assert (tmp_path / "a.part").read_bytes() == b"0123456789"
    assert not (tmp_path / "a").exists()


def print_and_rename(directory: str) -> None:
    print("last words", end="")
    rename_in(directory)


def test_what_was_printed_before_an_exit_is_kept(run: Callable[..., Outcome], tmp_path: Path) -> None:
    rank = run(1, "rank 0: exit(0) before file.replace", print_and_rename, str(tmp_path)).ranks[0]
    assert rank.status is Status.DIED
    assert rank.stdout == "last words"


def test_a_stopped_process_does_nothing_more(run: Callable[..., Outcome], tmp_path: Path) -> None:
    rank = run(1, "rank 0: stop before file.replace", rename_in, str(tmp_path), deadline=2).ranks[0]
    assert rank.status is Status.STUCK
    assert os.listdir(tmp_path) == ["a.part"]


def count_while_renaming(directory: str) -> tuple[float, float, int]:
    """The longest time in which a second thread got no turn, the time that the renaming took, its turns meanwhile."""
    ticks: list[float] = []
    over = threading.Event()

    def tick() -> None:
        while not over.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.002)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    rename_in(directory)
    ended = time.monotonic()
    over.set()
    thread.join()
    ticks.append(time.monotonic())
    return (
        max(later - earlier for earlier, later in pairwise(ticks)),
        ended - began,
        sum(began < tick < ended for tick in ticks),
    )


def test_holding_the_gil_stops_all_threads(run: Callable[..., Outcome], tmp_path: Path) -> None:
    plan = f"rank 0: hold_gil({BRIEF_S}) before file.replace"
    ((pause, took, _),) = run(1, plan, count_while_renaming, str(tmp_path)).unwrap()
    assert took >= BRIEF_S
    assert pause >= BRIEF_S


def test_a_delay_stops_one_thread(run: Callable[..., Outcome], tmp_path: Path) -> None:
    plan = f"rank 0: delay({4 * BRIEF_S}) after file.replace"
    ((_, took, turns),) = run(1, plan, count_while_renaming, str(tmp_path)).unwrap()
    assert took >= 4 * BRIEF_S
    assert turns > 2, "the other thread went on"
