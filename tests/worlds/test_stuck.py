"""A rank that is stuck in no collective: what it is doing is told, and what it did to itself."""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import RankStuck
from rankdrill.worlds import Outcome
from rankdrill.worlds.processes.watching import activity
from rankdrill.worlds.processes.watching.activity import activities
from rankdrill.worlds.processes.watching.kernel import kernel_stack, waits_in
from rankdrill.worlds.processes.watching.native import native_stacks
from tests.worlds.conftest import wait_until

DEADLINE_S = 2.0  # on a busy machine a rank needs a while to get to where it is stuck
PATIENCE_S = 30.0
LENDS = "RANKDRILL_TEST_LENDS"


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


def is_stopped_from_outside() -> None:
    """By a process that has gone by the time somebody looks."""
    subprocess.run(["/bin/sh", "-c", "kill -STOP $PPID"], check=True)


def computes_with_the_gil() -> None:
    re.match("(a+)+$", "a" * 64 + "b")  # takes as good as for ever, all of it in C


def sleeps_with_the_gil() -> None:
    libc = ctypes.PyDLL(None)
    while True:
        libc.sleep(1000)  # a signal wakes it


def cannot_be_interrupted() -> None:
    """Its memory is lent to a child for as long as that lives: the kernel lets nothing wake who waits for that."""
    ctypes.CDLL(os.environ[LENDS]).lend()


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
        (computes_with_the_gil, "computing"),
        (sleeps_with_the_gil, "asleep ("),
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


def test_who_was_stopped_from_outside_is_said_to_be_by_nobody_in_particular(two: World) -> None:
    outcome = stuck(two, is_stopped_from_outside)
    assert (outcome.culprits, outcome.victims) == ((1,), (0,))
    told = "rank 1 was still running at the deadline, stopped by a signal, before its first step"
    assert str(outcome.ranks[1]) == told


@pytest.fixture
def lends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library with `cannot_be_interrupted`'s function."""
    source, library = tmp_path / "lends.c", tmp_path / "lends.so"
    source.write_text(
        "#define _DEFAULT_SOURCE\n#include <unistd.h>\nvoid lend(void) { if (vfork() == 0) { sleep(30); _exit(0); } }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv(LENDS, str(library))
    return library


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
@pytest.mark.usefixtures("lends")
def test_who_cannot_be_interrupted_is_said_to_be_in_the_kernel(two: World) -> None:
    outcome = stuck(two, cannot_be_interrupted)
    told = str(outcome.ranks[1])
    assert "rank 1 was still running at the deadline, in the kernel, not to be interrupted" in told
    assert outcome.culprits == (1,)


def test_what_processor_time_a_stuck_rank_had_since_it_took_a_step(two: World) -> None:
    def body(spin: bool) -> None:
        if dist.get_rank() == 1:
            if spin:
                dist.barrier()
                spins()
            sleeps()
        dist.barrier()

    for spin, since in ((True, "its last step"), (False, "the run began")):
        outcome = two.run(body, spin, deadline=DEADLINE_S)
        with pytest.raises(ExceptionGroup) as caught:
            outcome.unwrap()
        (error,) = (one for one in caught.value.exceptions if isinstance(one, RankStuck))
        told = re.findall(rf"^([\d.]+) s of processor time in the ([\d.]+) s since {since}$", error.__notes__[0], re.M)
        had, of = map(float, *told)
        assert (had > of / 10) is spin, "two that spin may share one processor with others"
        assert 0 < of < PATIENCE_S
        fields = json.loads(outcome.to_json())["ranks"][1]["stuck"]
        assert (fields["processor_s"], fields["since_last_step_s"]) == (
            pytest.approx(had, abs=0.1),
            pytest.approx(of, abs=0.1),
        )
        assert fields["doing"] == outcome.ranks[1].doing


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The process of a child that sleeps."""
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            wait_until(lambda: activities({0: child.pid}).get(0, "").startswith(("asleep", "waiting in")), "it sleeps")
            yield child.pid
        finally:
            child.kill()


def test_where_in_the_kernel_one_sleeps(sleeper: int) -> None:
    if not os.access(f"/proc/{sleeper}/stack", os.R_OK):
        assert kernel_stack(sleeper) == ()
        pytest.skip("only root may read the kernel's stacks")
    functions = kernel_stack(sleeper)
    assert "nanosleep" in functions[0]
    assert not any(function.startswith(("do_syscall", "entry_")) for function in functions)


def test_where_the_system_call_is_not_told_the_kernels_function_may_be(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a process may be read, and not traced."""
    monkeypatch.setattr(activity, "_system_call", lambda pid: "")
    function = waits_in(sleeper)
    assert activities({0: sleeper}) == ({0: f"waiting in the kernel ({function})"} if function else {})


def test_a_process_that_is_gone_is_nowhere_in_the_kernel() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert (kernel_stack(child.pid), waits_in(child.pid)) == ((), "")


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
