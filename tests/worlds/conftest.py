"""Worlds that tests share while they stay healthy, and controllers of their own to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from rankdrill import World
from rankdrill.worlds.processes.nursery import KEEP_VARIABLE

# DistributedDataParallel and optimizers import it when they are first used: two seconds, on each rank anew.
OF_TRAINING = ("torch._dynamo",)
PATIENCE_S = 30.0  # for what takes well below a second on an idle machine


@pytest.fixture(scope="package")
def four() -> Iterator[World]:
    """A world of four ranks; a test that breaks it leaves the next one fresh ranks."""
    with World(4, preload=OF_TRAINING) as world:
        yield world


@pytest.fixture
def fresh(four: World) -> Iterator[World]:
    """Four ranks with a store in which nothing is set yet: ranks that are kept keep theirs."""
    four.discard()
    yield four
    four.discard()


@pytest.fixture(scope="package")
def two() -> Iterator[World]:
    with World(2, preload=OF_TRAINING) as world:
        yield world


def alive(pid: int) -> bool:
    """Whether `pid` runs: neither gone nor a zombie that nobody has reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], object], what: str) -> float:
    """Wait for `condition`; returns the seconds it took, fails with `what` if it does not come true."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE_S:
            pytest.fail(f"after {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.005)
    return time.monotonic() - began


@dataclass
class Controller:
    """A process of its own that runs worlds; `home` is its temporary directory, where it may leave notes."""

    process: subprocess.Popen[str]
    home: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def notes(self) -> dict[str, int]:
        """Pids that processes below the controller have written down, by name."""
        return {path.name.removesuffix(".pid"): int(path.read_text()) for path in self.home.glob("*.pid")}

    def wait_notes(self, count: int) -> dict[str, int]:
        """Wait for `count` of them."""
        wait_until(lambda: len(self.notes()) >= count or self.process.poll() is not None, "not all ranks are up")
        assert len(self.notes()) == count, self.process.communicate()
        return self.notes()


PRELUDE = """
import ctypes, os, signal, subprocess, sys, time
from rankdrill import World

def get_rank():
    import torch.distributed as dist  # in the ranks; the controller needs no torch
    return dist.get_rank()

def note(name, pid):
    path = os.path.join(os.environ["TMPDIR"], name)
    with open(path + ".part", "w") as file:
        file.write(str(pid))
    os.rename(path + ".part", path + ".pid")
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Callable[[str], Controller]]:
    """Starts a controller on a source text; kills all it left in the end."""
    started: list[Controller] = []

    def start(source: str) -> Controller:
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + source],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Of a template of its own: it takes nothing along that others use.
            env={**os.environ, "TMPDIR": str(tmp_path), KEEP_VARIABLE: ""},
            start_new_session=True,
        )
        started.append(Controller(process, tmp_path))
        return started[-1]

    yield start
    for each in started:
        for pid in (each.pid, *each.notes().values()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        each.process.communicate()
