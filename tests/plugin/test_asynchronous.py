"""Asynchronous calls in tests on ranks: where a missing wait is reported, and until when one is in time."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

LEAK = """
@pytest.mark.ranks(2{more})
def test_it(rank):
    dist.all_reduce(torch.ones(1), async_op=True)
"""


def test_a_leak_fails_the_test_with_its_line_as_the_headline(run: Run) -> None:
    ran = run(LEAK.format(more=""))
    told = ran.failure("test_it")
    assert told.startswith("request leak: ranks 0, 1 never waited for all_reduce #0 on 'default', at test_it.py:")
    assert told.splitlines()[0].endswith(" in test_it")
    assert "if nobody needs to wait here" in ran.screen


def test_a_hazard_fails_the_test_at_its_line(run: Run) -> None:
    ran = run(
        """
@pytest.mark.ranks(2)
def test_it(rank):
    tensor = torch.ones(1)
    work = dist.all_reduce(tensor, async_op=True)
    assert tensor.item() == 2
    work.wait()
"""
    )
    first, *rest = ran.failure("test_it").splitlines()
    assert first.startswith("input hazard: ranks 0, 1 read the output of all_reduce #0 on 'default' before that was")
    assert any(line.startswith("ranks 0, 1 issued all_reduce #0 on 'default', at test_it.py:") for line in rest)


def test_the_marker_and_the_option_let_tests_be(run: Run) -> None:
    assert run(LEAK.format(more=", contracts=False")).outcome("test_it") == "passed"
    assert run(LEAK.format(more=""), "--no-contracts").outcome("test_it") == "passed"


def test_a_test_may_expect_it(run: Run) -> None:
    marked = "@pytest.mark.xfail(raises=rankdrill.errors.ContractBroken, strict=True)" + LEAK.format(more="")
    run(f"import rankdrill.errors\n{marked}").result.assert_outcomes(xfailed=1)


def test_what_a_fixture_waits_for_at_teardown_is_in_time(run: Run) -> None:
    ran = run(
        """
@pytest.fixture
def works(rank):
    works = []
    yield works
    for work in works:
        work.wait()

@pytest.mark.ranks(2)
def test_it(works):
    works.append(dist.all_reduce(torch.ones(1), async_op=True))
"""
    )
    assert ran.outcome("test_it") == "passed", ran.screen


def test_what_no_fixture_waits_for_is_an_error_at_teardown(run: Run) -> None:
    ran = run(
        """
@pytest.fixture
def works(rank):
    works = []
    yield works
    assert works

@pytest.mark.ranks(2)
def test_it(works):
    works.append(dist.all_reduce(torch.ones(1), async_op=True))
"""
    )
    assert ran.outcome("test_it") == "error"
    assert "request leak" in ran.failure("test_it")


def test_in_a_fixture_it_is_an_error_at_setup(run: Run) -> None:
    ran = run(
        """
@pytest.fixture
def begun(rank):
    dist.all_reduce(torch.ones(1), async_op=True)

@pytest.mark.ranks(2)
def test_it(begun):
    pass
"""
    )
    assert ran.outcome("test_it") == "error"
    assert "request leak: ranks 0, 1 never waited for all_reduce #0" in ran.failure("test_it")
    assert " in begun" in ran.failure("test_it")


def test_a_fixture_of_the_module_may_wait_when_the_module_ends(run: Run) -> None:
    ran = run(
        """
@pytest.fixture(scope="module")
def begun():
    tensor = torch.ones(1)
    work = dist.all_reduce(tensor, async_op=True)
    yield tensor
    work.wait()
    assert tensor.item() == 2

@pytest.mark.ranks(2)
def test_one(begun):
    assert begun.shape == (1,)

@pytest.mark.ranks(2)
def test_two(begun):
    assert begun.shape == (1,)
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_what_the_body_has_kept_for_ever_is_a_leak(run: Run) -> None:
    ran = run("KEPT = []\n" + LEAK.format(more="").replace("dist.all", "KEPT.append(dist.all") + ")\n")
    assert "request leak" in ran.failure("test_it")


def test_a_body_that_failed_is_told_of_as_ever(run: Run) -> None:
    ran = run(
        """
@pytest.fixture
def nothing():
    yield

@pytest.mark.ranks(2)
def test_it(nothing):
    tensor = torch.ones(1)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is None, tensor
"""
    )
    assert ran.outcome("test_it") == "failed"
    assert "AssertionError" in ran.failure("test_it")
    assert "request leak" not in ran.screen
    assert "input hazard" not in ran.screen


def test_the_next_test_has_fresh_ranks(run: Run) -> None:
    ran = run(
        LEAK.format(more="")
        + """
@pytest.mark.ranks(2)
def test_after(rank):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2
"""
    )
    assert (ran.outcome("test_it"), ran.outcome("test_after")) == ("failed", "passed")


def test_with_hypothesis_the_smallest_example_is_told(run: Run) -> None:
    ran = run(
        """
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(max_examples=10, deadline=None, database=None, report_multiple_bugs=False)
@given(size=st.integers(1, 100))
def test_it(rank, size):
    work = dist.all_reduce(torch.ones(size), async_op=True)
    if size <= 3:
        work.wait()
"""
    )
    assert ran.outcome("test_it") == "failed"
    assert "size=4" in ran.screen
    assert "request leak" in ran.failure("test_it")
