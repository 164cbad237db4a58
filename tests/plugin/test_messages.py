"""Sends and receives that do not go together, in tests: one failure, with the lines of both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

UNMATCHED = """
@pytest.mark.ranks(3)
def test_it(rank{more}):
    if rank.index == 0:
        dist.isend(torch.ones(2), 1)

@pytest.mark.ranks(3)
def test_after(rank):
    dist.all_reduce(torch.ones(1))
"""

WITH_PHASES = """
@pytest.fixture
def pending(rank):
    right, left = (rank.index + 1) % 3, (rank.index - 1) % 3
    yield dist.isend(torch.ones(2), right), left

@pytest.mark.ranks(3)
def test_it(rank, pending):
    work, left = pending
    dist.recv(torch.ones(2), left)
    work.wait()
"""


@pytest.mark.parametrize("more", ["", ", tmp_path"])
def test_what_nobody_received_fails_the_test(run: Run, more: str) -> None:
    ran = run(UNMATCHED.format(more=more))
    assert "request leak: rank 0 never waited for isend on 'default', at test_it.py:" in ran.screen
    assert ran.outcome("test_after") == "passed"


def test_what_a_fixture_has_under_way_the_test_may_receive(run: Run) -> None:
    assert run(WITH_PHASES).outcome("test_it") == "passed"


def test_a_circle_of_receives(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(3)
def test_it(rank):
    dist.recv(torch.ones(2), (rank.index + 1) % 3)
""")
    assert "deadlock: rank 0 waits for rank 1, which waits for rank 2, which waits for rank 0" in ran.screen
    assert len(ran.failure("test_it").splitlines()) < 40
