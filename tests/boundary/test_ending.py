"""Calls that end the process are announced before they are made: whoever makes them, but for rankdrill and forks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rankdrill.boundary import Boundary

# All in forks of one process, which has torch imported; each is its own process to the boundary it installs.
ALL = """
import json, os, sys
from rankdrill.boundary import Boundary, install

def ended(source):
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(said, 1)
        os.close(heard)
        os.close(said)
        install(Boundary(on_end=lambda call: print("about to end by", call, flush=True)))
        exec(source, {"os": os, "sys": sys})
    os.close(said)
    with open(heard) as file:
        return file.read(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

print(json.dumps([ended(source) for source in json.load(sys.stdin)]))
"""
CASES = {
    "exit": ("os._exit(3)", "about to end by os._exit\n", 3),
    "by keyword": ("os._exit(status=4)", "about to end by os._exit\n", 4),
    "abort": ("os.abort()", "about to end by os.abort\n", -6),
    "raised": ("sys.exit(5)", "", 5),
    "in a fork": (
        "pid = os.fork()\nif pid == 0: os._exit(6)\nsys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
        "",
        6,
    ),
    "by rankdrill itself": ("import rankdrill\nexec(compile('os._exit(7)', rankdrill.__file__, 'exec'))", "", 7),
}


@pytest.fixture(scope="module")
def ended() -> dict[str, list[object]]:
    """What each prints, and how it ends."""
    sources = json.dumps([source for source, _, _ in CASES.values()])
    done = subprocess.run(
        [sys.executable, "-c", ALL], input=sources, capture_output=True, text=True, timeout=120, check=True
    )
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_an_end_is_announced_and_comes(ended: dict[str, list[object]], name: str) -> None:
    _, said, code = CASES[name]
    assert ended[name] == [said, code]


def test_nobody_need_listen() -> None:
    Boundary().announce_end("os._exit")
