"""What counts as a process that moves."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from rankdrill.motion import seconds_wanted, wants_processor
from rankdrill.worlds.processes.watching.supervise import LOOK_S, LOOK_SHARE, pause_between
from tests.worlds.conftest import wait_until

SPINS = "import threading; threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
SLEEPS = "import time; print('up', flush=True); time.sleep(1000)"


@pytest.mark.parametrize(("source", "moves"), [(SPINS, True), (SLEEPS, False)], ids=["spins", "sleeps"])
def test_a_thread_that_could_run_moves_its_process(source: str, moves: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as process:
        try:
            if moves:
                wait_until(lambda: wants_processor(process.pid), "it computes")
                before = seconds_wanted(process.pid)
                wait_until(lambda: seconds_wanted(process.pid) > before, "it has had a processor")
            else:
                assert process.stdout is not None
                process.stdout.readline()
                wait_until(lambda: not wants_processor(process.pid), "it sleeps")
                before = seconds_wanted(process.pid)
                time.sleep(0.2)
                assert seconds_wanted(process.pid) == before
        finally:
            process.kill()


def test_a_process_that_is_gone_does_not_move() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert (seconds_wanted(process.pid), wants_processor(process.pid)) == (0, False)


def test_a_suspicion_is_not_left_waiting_however_long_a_look_takes() -> None:
    """At many ranks a look takes long, and most of the time nothing is to be seen."""
    long = LOOK_S / 3
    assert pause_between(long, ended=True, suspects=False) == long / LOOK_SHARE
    assert pause_between(long, ended=False, suspects=True) == LOOK_S
    assert pause_between(LOOK_S, ended=True, suspects=True) == 2 * LOOK_S


def test_what_a_name_with_brackets_says_of_a_process() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "exec -a 'R) R (x' sleep 1000"]) as process:
        try:
            wait_until(lambda: not wants_processor(process.pid), "it sleeps")
        finally:
            process.kill()
