"""What each further test of a pytest session costs: from the end of one test to the end of the next.

Whole sessions, with nothing left out: pytest's own work, and the harness's before and after the body. No plugin is
loaded but the one that is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

__all__ = ["CONTINUOUS", "RANKDRILL", "test_times"]

BOUND_S = 900.0
WARMED_UP = 20  # tests that start the ranks, import what they need, and fill caches

_CLOCK = """
import json, os, time
from pathlib import Path

ends = []

def pytest_runtest_logfinish(nodeid, location):
    ends.append(time.monotonic())

def pytest_sessionfinish(session):
    if "RANK" not in os.environ:
        (Path(__file__).parent / "ends.json").write_text(json.dumps(ends))
"""

RANKDRILL = """
import pytest, torch, torch.distributed as dist

pytestmark = pytest.mark.ranks({ranks})
"""
_FUNCTION = """
def test_{number}():
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert float(tensor) == {ranks}
"""

CONTINUOUS = """
import torch, torch.distributed as dist
from torch.testing._internal.common_distributed import MultiProcContinuousTest

class TestPeer(MultiProcContinuousTest):
    world_size = {ranks}

    @classmethod
    def backend_str(cls):
        return "gloo"

    @classmethod
    def device_type(cls):
        return "cpu"
"""
_METHOD = """
    def test_{number}(self):
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(float(tensor), {ranks})
"""


def test_times(head: str, ranks: int, count: int) -> tuple[float, ...]:
    """Milliseconds of each of `count` tests, in one session of them that begins with `head`."""
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        (here / "conftest.py").write_text(_CLOCK)
        (here / "test_peer.py").write_text("".join(_source(head, ranks, count)))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", directory]
        if head is not CONTINUOUS:
            command += ["-p", "rankdrill.plugin.hooks"]
        # Of the plugins that are installed here to be tested beside, users of neither have all.
        alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        ran = subprocess.run(command, cwd=directory, env=alone, capture_output=True, text=True, timeout=BOUND_S)
        if ran.returncode:
            raise SystemExit(f"the pytest session failed:\n{ran.stdout}{ran.stderr}")
        ends = json.loads((here / "ends.json").read_text())[WARMED_UP:-1]  # the last also ends the ranks
    return tuple((after - before) * 1e3 for before, after in pairwise(ends))


def _source(head: str, ranks: int, count: int) -> Iterator[str]:
    yield head.format(ranks=ranks)
    body = _METHOD if head is CONTINUOUS else _FUNCTION
    for number in range(WARMED_UP + count + 2):
        yield body.format(number=number, ranks=ranks)
