"""Ranks that break a contract in a test: one failure, the culprit's line first; and how to do without."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

MISMATCH = """
@pytest.mark.ranks(3{more})
def test_it(rank):
    if rank.index == 1:
        dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX)
    else:
        dist.all_reduce(torch.ones(2))
"""


def test_the_culprits_line_is_the_headline(run: Run) -> None:
    ran = run(MISMATCH.format(more=""))
    first, second, *_ = [line for line in ran.failure("test_it").splitlines() if "all_reduce" in line]
    assert first.startswith(
        "operator mismatch: rank 1 enters all_reduce #0 on 'default' with reduce op max, at test_it.py:"
    )
    assert first.endswith(" in test_it")
    told = "ranks 0, 2 enter all_reduce #0 on 'default' with reduce op sum, at test_it.py:"
    assert told in ran.screen
    assert len(ran.failure("test_it").splitlines()) < 40
    assert second


def test_the_marker_lets_a_test_be(run: Run) -> None:
    assert run(MISMATCH.format(more=", contracts=False")).outcome("test_it") == "passed"


def test_the_option_lets_all_tests_be(run: Run) -> None:
    assert run(MISMATCH.format(more=""), "--no-contracts").outcome("test_it") == "passed"


ON_THE_WAY_OUT = """
@pytest.mark.ranks(3)
def test_it(rank):
    try:
        if rank.index == 1:
            raise KeyError("weights")
        dist.all_reduce(torch.ones(2))
    finally:
        dist.barrier()
"""


def test_a_failure_behind_it_is_meant_by_nobody(run: Run) -> None:
    shown = run(ON_THE_WAY_OUT).failure("test_it")
    assert "lost rank: rank 1 raises KeyError: 'weights'" in shown
    assert "contracts=False" not in shown


def test_what_is_no_such_setting_is_refused(run: Run) -> None:
    ran = run(MISMATCH.format(more=", contracts='no'"))
    assert "contracts='no' is not known; choose from True, False, \"strict\"" in ran.screen


def test_a_test_may_expect_it(run: Run) -> None:
    source = MISMATCH.format(more="").replace(
        "@pytest.mark.ranks",
        "@pytest.mark.xfail(raises=rankdrill.errors.ContractBroken, strict=True)\n@pytest.mark.ranks",
    )
    run(f"import rankdrill.errors\n{source}").result.assert_outcomes(xfailed=1)


def test_the_next_test_has_fresh_ranks(run: Run) -> None:
    ran = run(
        MISMATCH.format(more="")
        + """
@pytest.mark.ranks(3)
def test_after(rank):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 3
"""
    )
    assert (ran.outcome("test_it"), ran.outcome("test_after")) == ("failed", "passed")


def test_in_a_fixture_it_is_an_error_at_setup(run: Run) -> None:
    ran = run(
        """
@pytest.fixture
def shared(rank):
    dist.all_reduce(torch.ones(1 + rank.index // 2))
    return 1

@pytest.mark.ranks(3)
def test_it(shared):
    pass
"""
    )
    assert ran.outcome("test_it") == "error"
    assert "size mismatch: rank 2 enters all_reduce #0 on 'default' with float32[2]" in ran.failure("test_it")


def test_with_hypothesis_the_smallest_example_is_told(run: Run) -> None:
    ran = run(
        """
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(max_examples=10, deadline=None, database=None, report_multiple_bugs=False)
@given(size=st.integers(1, 100))
def test_it(rank, size):
    dist.all_reduce(torch.ones(size if rank.index == 0 else min(size, 3)))
"""
    )
    assert ran.outcome("test_it") == "failed"
    assert "size=4" in ran.screen
    assert "size mismatch" in ran.failure("test_it")
