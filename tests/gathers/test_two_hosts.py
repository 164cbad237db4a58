"""Four ranks on two hosts, each with a network and a /dev/shm of its own, as far as one machine can have two hosts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ADDRESSES = ("10.97.0.1", "10.97.0.2")
SIZE = 4
BOUND_S = 120

NEEDED = [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or bool(NEEDED), reason=f"makes network namespaces: needs root and {NEEDED or 'nothing more'}"
)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no network namespaces here: {' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """The names of two network namespaces, joined by a cable."""
    names = (f"rankdrill-{os.getpid()}-a", f"rankdrill-{os.getpid()}-b")
    try:
        for name in names:
            run("ip", "netns", "add", name)
        ends = (f"rd{os.getpid() % 10**7}a", f"rd{os.getpid() % 10**7}b")
        run("ip", "link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for name, end, address in zip(names, ends, ADDRESSES, strict=True):
            run("ip", "-n", name, "link", "set", end, "name", "cable")
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            run("ip", "-n", name, "link", "set", "cable", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def start(host: str, ranks: range, common: Path) -> subprocess.Popen[str]:
    """Ranks of one host: with a network of their own, and in a mount namespace with a /dev/shm of its own."""
    numbers = ",".join(map(str, ranks))
    both = f"{sys.executable} -m tests.gathers.on_a_host {numbers} {SIZE} {ADDRESSES[0]} {common}"
    shell = f"mount -t tmpfs -o mode=1777 tmpfs /dev/shm && {both}"
    command = ["ip", "netns", "exec", host, "unshare", "--mount", "--propagation", "private", "sh", "-c", shell]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "cable", "RANKDRILL_LINE": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def test_ranks_on_two_hosts(hosts: tuple[str, str], tmp_path: Path) -> None:
    started = [start(hosts[0], range(2), tmp_path), start(hosts[1], range(2, 4), tmp_path)]
    found: dict[int, Any] = {}
    for process in started:
        out, errors = process.communicate(timeout=BOUND_S)
        if "mount" in errors and not out:
            pytest.skip(f"no mount namespaces here: {errors.strip()}")
        while out := out.strip():
            # Two ranks print into one pipe: what they say is whole, the ends of their lines may come later.
            told, end = json.JSONDecoder().raw_decode(out)
            found[told.pop("rank")] = told
            out = out[end:]
        assert "Traceback" not in errors, errors
    assert sorted(found) == [0, 1, 2, 3]
    for rank, told in found.items():
        assert told["hosts"] == [[0, 1], [2, 3]]
        assert told["objects"] == [[one, 200_000] for one in range(4)]
        assert told["why"].startswith("once to each machine, shared memory within: 4 ranks on 2 machines (0, 1 | 2, 3)")
        # Two ranks sit on the other host. What each of them has comes here once, for both ranks here.
        assert 2.0 <= told["crossed"]["auto"] < 2.2 < told["crossed"]["network"]
        assert told["neighbours"] == ([200_000] * 2 if rank < 2 else [])
        assert told["shm"] == told["configs"] == ["StorageError", [2, 3]]
        # A directory of each host's own: who looks for files, and cannot see those of the other host, says so.
        everybody, first = ["StorageError", [0, 1, 2, 3]], ["StorageError", [0]]
        assert told["own"] == [everybody, first, first, everybody, []]
        assert told["common"] == [[0, 1, 2, 3], [0, 1, 2, 3] if rank == 0 else [], [0, 1, 2, 3]]
        assert told["after"] == [0, 1, 2, 3]
