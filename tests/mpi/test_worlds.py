"""Worlds of MPI's ranks: fresh ones each time, several at once, nothing left, and what there can be none of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from rankdrill import World
from rankdrill.errors import PlanError
from rankdrill.faults import Plan
from rankdrill.faults.among_mpi import check_among_mpi
from rankdrill.worlds import Verdict
from tests.covering import thinned
from tests.mpi import bodies
from tests.mpi.installed import needs_mpi

SEGMENTS = Path("/dev/shm")
BOUND_S = 30.0


def number() -> tuple[int, list[int]]:
    comm = bodies.world()
    return os.getpid(), comm.allgather(os.getpid())


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PMI_", "MPI_", "UCX_", "MPIR_"))}


@needs_mpi
def test_each_run_has_fresh_ranks() -> None:
    with World(2, mpi=True) as world:
        (one, both), (other, _) = world.run(number).unwrap()
        assert [one, other] == both
        again = world.run(number).unwrap()
        assert not {one, other} & {pid for pid, _ in again}


@needs_mpi
def test_two_jobs_at_once_do_not_meet() -> None:
    def several(_: int) -> list[Any]:
        with World(2, mpi=True) as world:
            return [world.run(number).unwrap() for _ in range(3)]

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(several, range(2))
    for values in (*one, *other):
        assert [pid for pid, _ in values] == values[0][1]


@needs_mpi
def test_ranks_are_those_of_torch_too() -> None:
    with World(3, mpi=True) as world:
        assert world.run(_both).unwrap() == [(rank, rank, 3) for rank in range(3)]


def _both() -> tuple[int, int, int]:
    import torch
    import torch.distributed as dist

    comm = bodies.world()
    total = torch.ones(1)
    dist.all_reduce(total)
    return comm.rank, dist.get_rank(), int(total)


BODIES = thinned([bodies.gathers, bodies.every_kind, bodies.is_killed, bodies.leaves_one_out], 2)


@needs_mpi
@pytest.mark.parametrize("body", BODIES)
def test_nothing_is_left(body: Any) -> None:
    with World(3, mpi=True) as world:
        world.run(body)
        ranks = [pid for pid, _ in world.run(number).unwrap()]
    segments = set(SEGMENTS.glob("mpich*")) | set(SEGMENTS.glob("ucx*"))
    until = time.monotonic() + BOUND_S  # another test's ranks may be about to unlink theirs
    while any(segment.exists() for segment in segments) and time.monotonic() < until:
        time.sleep(0.05)
    assert [str(segment) for segment in segments if segment.exists()] == []
    assert [pid for pid in ranks if psutil.pid_exists(pid)] == []


@needs_mpi
def test_ranks_find_the_variables_of_a_launcher_and_not_the_way_to_it() -> None:
    with World(2, mpi=True) as world:
        told = world.run(environment).unwrap()
    assert [each["PMI_RANK"] for each in told] == ["0", "1"]
    assert all(each["PMI_SIZE"] == "2" and each["MPI_LOCALNRANKS"] == "2" for each in told)
    assert not any("PMI_FD" in each or "UCX_TLS" in each for each in told)


@needs_mpi
def test_a_rank_may_be_killed_at_a_call_of_mpi() -> None:
    plan = Plan.parse("rank 1: kill before collective.mpi_gather")
    with World(3, mpi=True) as world:
        outcome = world.run(bodies.gathers, plan=plan, deadline=5)
    assert outcome.ranks[1].by_plan
    assert outcome.ranks[0].status.name == "STUCK"
    assert outcome.verdict is Verdict.HANG


def test_faults_that_need_tensors_are_refused() -> None:
    plan = Plan.parse("rank 0: skip at collective.gather")
    with pytest.raises(PlanError, match="skip strikes at torch's collectives, and not in a world with mpi=True"):
        check_among_mpi(plan)


def test_without_mpi4py_one_line_says_what_to_install() -> None:
    program = (
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'mpi4py' else found(name, *more)\n"
        "from rankdrill import World\nWorld(2, mpi=True)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "rankdrill.errors.UnsupportedPlatform: mpi=True needs mpi4py, which is not installed, and MPICH; "
        'pip install "rankdrill[mpi]" brings both'
    )


@needs_mpi
def test_without_a_library_of_mpi_ranks_say_what_to_install() -> None:
    """mpi4py is told to load Open MPI, which need not be there."""
    program = (
        "from rankdrill import World\n"
        "from tests.mpi.bodies import gathers\n"
        "outcome = World(2, mpi=True).run(gathers)\n"
        "print([f'{type(rank.error).__name__}: {rank.error}' for rank in outcome.ranks])\n"
    )
    environ = {**os.environ, "MPI4PY_MPIABI": "openmpi", "RANKDRILL_KEEP_TEMPLATE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        env=environ,
        cwd=Path(__file__).parents[2],
    )
    assert re.search(r"UnsupportedPlatform: mpi=True needs (mpi4py and )?MPICH", ran.stdout), ran.stderr
    assert re.search(r'pip install "rankdrill\[mpi\]" brings (both|MPICH)', ran.stdout)
