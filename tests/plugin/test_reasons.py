"""Which rank, and why, where a test ends otherwise than by failing: it skips, or interrupts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]


def test_a_rank_that_skipped_what_others_wait_in_is_said_to_have_skipped(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(4)
def test_skips(rank):
    if rank == 3:
        pytest.skip("too few shards")
    dist.all_reduce(torch.ones(1))

@pytest.mark.ranks(4)
def test_expects_to_fail(rank):
    if rank == 1:
        pytest.xfail("no such shard")
    dist.new_group([0, 1, 2, 3])

@pytest.mark.ranks(2)
def test_skips_beside_one(rank):
    if rank == 1:
        pytest.skip("only one shard")
    dist.all_reduce(torch.ones(1))

@pytest.mark.ranks(4)
def test_returns(rank):
    if rank != 2:
        dist.all_reduce(torch.ones(1))
""")
    skips = ran.failure("test_skips")
    assert "missing call: rank 3 leaves out all_reduce #0" in skips
    assert "\nrank 3 skipped (too few shards)\n" in skips
    assert "\nrank 1 xfailed (no such shard)\n" in ran.failure("test_expects_to_fail")
    beside_one = ran.failure("test_skips_beside_one")
    assert "missing call, nobody in the majority: rank 1 leaves out all_reduce #0" in beside_one
    assert "\nrank 1 skipped (only one shard)\n" in beside_one
    assert "rank 2 passed" not in ran.failure("test_returns")


def test_an_interrupt_on_a_rank_ends_the_session_with_the_rank_and_its_line(run: Run) -> None:
    ran = run(
        """
@pytest.mark.ranks(3)
def test_it(rank):
    if rank == 2:
        raise KeyboardInterrupt
    dist.barrier()
""",
        subprocess=True,
    )
    assert ran.result.ret == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt: rank 2 failed: KeyboardInterrupt at test_it.py:" in ran.screen
