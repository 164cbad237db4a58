"""Every path after every kind of failure: the next calls work, whichever path they take, and nothing is left behind."""

from __future__ import annotations

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist

import rankdrill
from tests.gathers.all_ways import WAYS, At, tensor, way
from tests.gathers.attempts import Raised, attempt
from tests.gathers.failures import RANKS, TURNS, every_failure, judge, what_is_wrong_after
from tests.gathers.in_threads import PATIENCE_S, at_once

SHORT_S = 1.0
DEADLINE_S = 120.0
ROOT = pathlib.Path(__file__).parents[2]
# Those that are more than another's name; the calls that follow a failure go by all of them.
PATHS = [one.name for one in WAYS if one.name not in (
    "all_gather/cpu", "all_gather/files", "gather/shm", "gather/network", "gather_object",
    "all_gather_via_filesys/default",
)]  # fmt: skip


def left_in(directory: pathlib.Path) -> list[str]:
    entries = [entry for entry in directory.rglob("*") if not entry.name.endswith(".pt")]
    return [entry.name for entry in entries if entry.name != "elsewhere"]


@pytest.mark.parametrize("name", PATHS)
def test_a_call_after_a_failure(world: rankdrill.World, tmp_path: pathlib.Path, name: str) -> None:
    judge(way(name), world.run(every_failure, name, str(tmp_path), deadline=DEADLINE_S).unwrap())
    assert left_in(tmp_path) == []


@pytest.mark.nightly
def test_ranks_that_no_world_started(tmp_path: pathlib.Path) -> None:
    """As in production: torch's groups as they are, and a TCPStore."""
    (tmp_path / "files").mkdir()
    command = [sys.executable, "-m", "tests.gathers.on_its_own", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True
    )
    try:
        errors = started.communicate(timeout=DEADLINE_S)[1]
        assert started.returncode == 0, errors
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    ranks = [pickle.loads((tmp_path / f"told-{rank}").read_bytes()) for rank in RANKS]
    for key in ranks[0]:
        judge(way(key[1]), [told[key] for told in ranks])
    assert {line for line, _ in ranks[0]} == {"local", "gloo"}
    assert left_in(tmp_path / "files") == []


def lose_a_rank_in_turn(name: str, group: Any, directory: str) -> list[Any]:
    """Rank 1 raises before its call, or comes when the others have given up; returns what is wrong."""
    one, at, wrong = way(name), At(group, directory), []
    me, marker = dist.get_rank(), pathlib.Path(directory, f"given-up-{group.group_name}")
    hurried = replace(at, timeout=SHORT_S)
    for turn in range(TURNS):
        lost = None if me == 1 else attempt(one, tensor(0), hurried)
        dist.barrier(group)
        wrong += what_is_wrong_after(one, at, 2 * turn)
        if me == 1:
            until = time.monotonic() + PATIENCE_S
            while not marker.exists() and time.monotonic() < until:
                time.sleep(0.01)
        late = attempt(one, tensor(0), hurried)
        marker.touch()
        wrong += what_is_wrong_after(one, at, 2 * turn + 1)
        dist.barrier(group)
        marker.unlink(missing_ok=True)
        dist.barrier(group)
        for error in (late, *([] if me == 1 else [lost])):
            # On a busy machine others may be late as well.
            if not isinstance(error, Raised) or error.kind != "PeerLost" or 1 not in error.ranks:
                wrong.append((name, turn, error))
    return wrong


@pytest.mark.parametrize(
    "line", ["local", pytest.param("gloo", marks=pytest.mark.nightly)], indirect=True, scope="module"
)
def test_a_call_after_a_rank_was_lost(world: rankdrill.World, tmp_path: pathlib.Path) -> None:
    """All paths at once, each on a group and in a thread of its own: most of it is waiting."""

    def body() -> Any:
        groups = [(name, dist.new_group(RANKS)) for name in PATHS]
        for name, group in groups[::2]:  # the others connect when one of them is missing
            assert what_is_wrong_after(way(name), At(group, str(tmp_path)), 0) == []
        return at_once(*(lambda n=name, g=group: lose_a_rank_in_turn(n, g, str(tmp_path)) for name, group in groups))

    for wrong in world.run(body, deadline=2 * DEADLINE_S).unwrap():
        assert dict(zip(PATHS, wrong, strict=True)) == {name: [] for name in PATHS}
    assert left_in(tmp_path) == []
