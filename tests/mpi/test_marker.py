"""``@pytest.mark.ranks(n, mpi=True)``: a test of an mpi4py gather is as easy as a test of a function."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mpi.installed import needs_mpi
from tests.plugin.conftest import Ran, run

__all__ = ["run"]

SOURCE = """
from mpi4py import MPI


@pytest.fixture
def comm():
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


@pytest.mark.ranks(3, mpi=True)
def test_right(comm):
    received = comm.gather(comm.rank ** 2, root=0)
    assert received == ([0, 1, 4] if comm.rank == 0 else None)


@pytest.mark.ranks(2, mpi=True)
def test_left_out(comm):
    if comm.rank == 0:
        comm.allgather(0)


@pytest.mark.ranks(2, mpi=True)
def test_right_again(tmp_path):
    assert MPI.COMM_WORLD.allgather(tmp_path) == [tmp_path] * 2
"""


@needs_mpi
def test_ranks_of_a_test_are_those_of_mpi(run: Callable[..., Ran]) -> None:
    ran = run(SOURCE, subprocess=True)
    ran.result.assert_outcomes(passed=2, failed=1)
    assert ran.outcome("test_left_out") == "failed"
    failure = ran.failure("test_left_out")
    assert "rank 0 makes one call more, mpi_allgather" in failure
    assert "python -m pytest" in failure


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("2, mpi=1", "mpi=1 is neither True nor False"),
        ("2, mpi=True, faults='rank 0: skip at collective.*'", "skip strikes at torch's collectives"),
    ],
)
def test_a_wrong_marker_is_refused(run: Callable[..., Ran], options: str, says: str) -> None:
    ran = run(f"@pytest.mark.ranks({options})\ndef test_it(): ...\n")
    assert ran.result.ret != 0
    assert says in ran.screen
