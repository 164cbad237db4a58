"""Calls that end the process are announced before they are made: whoever makes them, but for rankdrill and forks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rankdrill.boundary import Boundary

PRELUDE = """
import os, sys
from rankdrill.boundary import Boundary, install
install(Boundary(on_end=lambda call: print("about to end by", call, flush=True)))
"""


def run(source: str) -> tuple[str, int]:
    """What a process prints, and how it ends."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + source], capture_output=True, text=True, timeout=120)
    return done.stdout, done.returncode


@pytest.mark.parametrize(
    ("source", "said", "code"),
    [
        ("os._exit(3)", "about to end by os._exit\n", 3),
        ("os._exit(status=4)", "about to end by os._exit\n", 4),
        ("os.abort()", "about to end by os.abort\n", -6),
        ("sys.exit(5)", "", 5),
        (
            "pid = os.fork()\nif pid == 0: os._exit(6)\nsys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
            "",
            6,
        ),
        ("import rankdrill\nexec(compile('os._exit(7)', rankdrill.__file__, 'exec'))", "", 7),
    ],
    ids=["exit", "by keyword", "abort", "raised", "in a fork", "by rankdrill itself"],
)
def test_an_end_is_announced_and_comes(source: str, said: str, code: int) -> None:
    assert run(source) == (said, code)


def test_nobody_need_listen() -> None:
    Boundary().announce_end("os._exit")
