"""What counts as a process that moves."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from rankdrill.worlds.processes.watching.motion import seconds_wanted, wants_processor
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
