"""A rank that is stuck in no collective: what it is doing is told, and what it did to itself."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.worlds import Outcome
from rankdrill.worlds.processes.watching import activity
from rankdrill.worlds.processes.watching.activity import activities
from rankdrill.worlds.processes.watching.native import native_stacks

DEADLINE_S = 2.0  # on a busy machine a rank needs a while to get to where it is stuck
PATIENCE_S = 30.0


def spins() -> None:
    while True:
        pass


def sleeps() -> None:
    time.sleep(1000)


def awaits_an_event() -> None:
    threading.Event().wait(1000)


def reads() -> None:
    os.read(os.pipe()[0], 1)


def runs_a_command() -> None:
    subprocess.run(["sleep", "60"], check=True)


def stops_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def raises_a_signal() -> None:
    signal.raise_signal(signal.SIGUSR2)


def stuck(world: World, how: Callable[[], None]) -> Outcome:
    """What comes of a run in which rank 1 does it, and the other waits."""

    def body() -> None:
        if dist.get_rank() == 1:
            how()
        dist.barrier()

    return world.run(body, deadline=DEADLINE_S)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (spins, "computing"),
        (sleeps, "asleep ("),
        (awaits_an_event, "waiting for a lock or for another thread (futex)"),
        (reads, "waiting to read (read)"),
        (stops_itself, "stopped by os.kill with SIGSTOP"),
    ],
)
def test_it_is_told_what_a_stuck_rank_does_and_where(two: World, how: Callable[[], None], told: str) -> None:
    outcome = stuck(two, how)
    assert (outcome.culprits, outcome.victims) == ((1,), (0,))
    (line,) = re.findall(
        r"^rank 1 was still running at the deadline, (.*), before its first step$", str(outcome.ranks[1])
    )
    assert line.startswith(told)
    lines, first = inspect.getsourcelines(how)
    found = re.search(rf"at \S+{re.escape(os.path.basename(__file__))}:(\d+) in {how.__name__}$", line)
    assert found is not None, line
    assert first < int(found[1]) < first + len(lines)


def test_ranks_that_are_stuck_alike_are_told_together(four: World) -> None:
    def body() -> None:
        if dist.get_rank():
            sleeps()
        dist.barrier()

    outcome = four.run(body, deadline=DEADLINE_S)
    with pytest.raises(ExceptionGroup) as caught:
        outcome.unwrap()
    stuck, victim = map(str, caught.value.exceptions)
    assert stuck.startswith("ranks 1, 2, 3 were still running at the deadline, asleep (")
    assert victim.startswith("rank 0 waits in collective.barrier #0")


def test_a_signal_that_ends_the_process_is_told_with_its_line(two: World) -> None:
    outcome = stuck(two, raises_a_signal)
    assert outcome.culprits == (1,)
    assert "rank 1 killed by SIGUSR2, by signal.raise_signal at " in str(outcome.ranks[1])
    assert " in raises_a_signal, before its first step" in str(outcome.ranks[1])


def test_signals_that_end_nothing_are_nobodys_end(two: World) -> None:
    def body() -> None:
        os.kill(os.getpid(), 0)
        os.kill(os.getpid(), signal.SIGCONT)
        signal.signal(signal.SIGUSR2, lambda *_: None)
        signal.raise_signal(signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        child = subprocess.Popen(["sleep", "60"])
        os.kill(child.pid, signal.SIGTERM)
        child.wait(PATIENCE_S)
        if dist.get_rank() == 1:
            os._exit(3)
        dist.barrier()

    outcome = two.run(body)
    assert str(outcome.ranks[1]).startswith("rank 1 exited with code 3, by os._exit at ")


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the kernel does not tell system calls")
def test_a_process_that_is_gone_does_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        until = time.monotonic() + PATIENCE_S
        while activities({3: child.pid}).get(3, "")[:6] != "asleep" and time.monotonic() < until:
            time.sleep(0.05)
        assert activities({3: child.pid})[3].startswith("asleep (")
    finally:
        child.kill()
        child.wait()
    assert activities({3: child.pid}) == {}


def test_who_only_seemed_to_compute_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [{1: "computing", 2: "computing", 3: ""}, {1: "waiting to read (read)", 2: "computing"}, {2: "computing"}]
    asked = []

    def sampled(pids: dict[int, int]) -> dict[int, str]:
        asked.append(sorted(pids))
        return looks[len(asked) - 1]

    monkeypatch.setattr(activity, "_sampled", sampled)
    assert activities({1: 11, 2: 12, 3: 13}) == {1: "waiting to read (read)", 2: "computing"}
    assert asked == [[1, 2, 3], [1, 2], [2]]


def test_c_stacks_come_from_py_spy_if_it_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this name stands for it: what it says is passed on, rankdrill's own frames left out."""
    spy = tmp_path / "py-spy"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert native_stacks({1: 1}) == {}, "not installed"
    frames = ["sre_match (libpython.so)", "body (train.py:3)", "Jobs._body (rankdrill/jobs.py:1)", "main (x.py:1)"]
    dump = "\n".join(['Thread 7 (active): "MainThread"', *(f"    {frame}" for frame in frames)])
    header = "Process 7: python -c \nimport os\n    os._exit(0)\nPython v3"  # a command of several lines
    spy.write_text(f"#!/bin/sh\ncat <<'END'\n{header}\n{dump}\nEND\n")
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), os.defpath)))
    (told,) = native_stacks({1: 1}).values()
    assert told.splitlines()[1:] == ['Thread 7 (active): "MainThread"', f"    {frames[0]}", f"    {frames[1]}"]
    spy.write_text("#!/bin/sh\nexit 1\n")
    assert native_stacks({1: 1}) == {}, "it may not look"


@pytest.mark.parametrize(("unstopped", "how"), [(False, "--native"), (True, "--nonblocking")])
def test_py_spy_stops_nobody_who_is_to_be_left_running(
    unstopped: bool, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\necho "Thread 7: $*"\necho "    $*"\n')
    spy.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), os.defpath)))
    (told,) = native_stacks({1: 7}, unstopped=unstopped).values()
    assert told.splitlines()[-1] == f"    dump {how} --pid 7"
