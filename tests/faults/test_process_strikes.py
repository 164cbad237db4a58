"""Strikes that end, stop or hold up a process, on real ranks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from signal import SIGABRT, SIGKILL
from types import SimpleNamespace

import pytest

from rankdrill.boundary import Boundary, Call
from rankdrill.faults import STRIKES, When, process
from rankdrill.step import Kind, Step
from rankdrill.worlds import Outcome, Status

BRIEF_S = 0.3
MKDIR = Call(Step(Kind.FILE, "mkdir", "/x"), {})


def rename_in(directory: str) -> str:
    """Write aside, then rename: three steps."""
    path = Path(directory, "a")
    path.with_suffix(".part").write_bytes(b"0123456789")
    os.replace(path.with_suffix(".part"), path)
    return path.read_text()


def rename_apart(directory: str) -> str:
    """The same, where no other rank does."""
    return rename_in(tempfile.mkdtemp(dir=directory))


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


def print_to_a_buffer_and_rename(directory: str) -> None:
    # As in a test whose output is captured: not the rank's own streams, which keep nothing back.
    with (
        open(1, "w", closefd=False) as buffered,
        contextlib.redirect_stdout(buffered),
        contextlib.redirect_stderr(None),
    ):
        print_and_rename(directory)


@pytest.mark.parametrize("strike", ["exit", "abort"])
def test_what_lies_in_a_buffer_is_kept_too(strike: str, run: Callable[..., Outcome], tmp_path: Path) -> None:
    plan = f"rank 0: {strike} before file.replace"
    rank = run(1, plan, print_to_a_buffer_and_rename, str(tmp_path)).ranks[0]
    assert rank.status is Status.DIED
    assert rank.stdout == "last words"


def test_nothing_more_happens_while_a_kill_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(process, "os", SimpleNamespace(getpid=lambda: 7, kill=lambda *args: done.append(args)))
    monkeypatch.setattr(process, "time", SimpleNamespace(sleep=done.append))
    STRIKES["kill"](When.BEFORE, (), Boundary()).act(MKDIR)
    assert done == [(7, SIGKILL), process.MAX_SECONDS]


def test_a_stopped_process_does_nothing_more(run: Callable[..., Outcome], tmp_path: Path) -> None:
    rank = run(1, "rank 0: stop before file.replace", rename_in, str(tmp_path), deadline=2).ranks[0]
    assert rank.status is Status.STUCK
    assert os.listdir(tmp_path) == ["a.part"]


def test_nobody_waits_for_a_stopped_process_when_all_others_have_ended(
    run: Callable[..., Outcome], tmp_path: Path
) -> None:
    outcome = run(2, "rank 0: stop before file.replace", rename_apart, str(tmp_path), deadline=20)
    assert outcome.elapsed < 15
    assert (outcome.ranks[0].status, outcome.ranks[0].by_plan) == (Status.STUCK, True)
    assert outcome.ranks[1].status is Status.RETURNED


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


class Clock:
    """Stands still while nobody sleeps; `signals` end as many sleeps half-way."""

    def __init__(self, signals: int) -> None:
        self.signals = signals
        self.now_ns = self.sleeps = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def usleep(self, wanted: ctypes.c_uint) -> None:
        self.sleeps += 1
        assert self.sleeps < 9, "it goes on sleeping"
        self.now_ns += wanted.value * (500 if self.sleeps <= self.signals else 1000)


@pytest.mark.parametrize(
    ("seconds", "signals"), [(0.0, 0), (1e-9, 0), (BRIEF_S, 0), (BRIEF_S, 1), (BRIEF_S, 3), (process.MAX_SECONDS, 0)]
)
def test_the_gil_is_held_to_the_microsecond(seconds: float, signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(signals)
    monkeypatch.setattr(process, "time", clock)
    monkeypatch.setattr(process, "ctypes", SimpleNamespace(PyDLL=lambda name: clock, c_uint=ctypes.c_uint))
    STRIKES["hold_gil"](When.BEFORE, (seconds,), Boundary()).act(MKDIR)
    assert 0 <= clock.now_ns - seconds * 1e9 <= 1000
    # In one go, unless a signal came: between two sleeps other threads can get a turn.
    assert clock.sleeps == (1 if seconds else 0) + signals


def test_a_delay_stops_one_thread(run: Callable[..., Outcome], tmp_path: Path) -> None:
    plan = f"rank 0: delay({4 * BRIEF_S}) after file.replace"
    ((_, took, turns),) = run(1, plan, count_while_renaming, str(tmp_path)).unwrap()
    assert took >= 4 * BRIEF_S
    assert turns > 2, "the other thread went on"
