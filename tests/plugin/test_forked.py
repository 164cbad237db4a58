"""A test that forks by itself: its children neither answer for their rank nor go on with its session."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

FORKS = """
import os, sys

def forks(how):
    if not os.fork():
        how()
    os.wait()

def leaves():
    sys.exit(0)

def fails():
    raise KeyError("of the child's")

@pytest.mark.ranks(2)
@pytest.mark.parametrize("how", [leaves, fails])
def test_right(rank, how):
    forks(how)
    dist.all_reduce(torch.ones(1))

@pytest.mark.ranks(2)
@pytest.mark.parametrize("how", [leaves, fails])
def test_wrong(rank, how):
    forks(how)
    assert 0, "the rank's own"

@pytest.fixture
def forked(rank):
    forks(leaves)
    yield
    forks(leaves)

@pytest.mark.ranks(2)
def test_in_fixtures(rank, forked):
    dist.all_reduce(torch.ones(1))
"""


def test_the_verdict_is_the_ranks_own(run: Run) -> None:
    ran = run(FORKS)
    ran.result.assert_outcomes(passed=3, failed=2)
    assert ran.screen.count("AssertionError: the rank's own") >= 2
