"""N ranks, one result: what ranks that end differently come to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]


@pytest.mark.parametrize(
    ("one", "told"),
    [
        ("pytest.xfail('known')", "ranks disagree: rank 1 xfailed (known); ranks 0, 2 passed"),
        ("pytest.skip('not here')", "ranks disagree: rank 1 skipped (not here); ranks 0, 2 passed"),
        ("request.applymarker(pytest.mark.xfail(reason='known'))", "ranks disagree: rank 1 xpassed (known)"),
    ],
)
def test_what_one_rank_alone_does_is_no_pass(run: Run, one: str, told: str) -> None:
    ran = run(f"""
@pytest.mark.ranks(3)
def test_it(rank, request):
    if rank.index == 1:
        {one}
""")
    assert ran.outcome("test_it") == "failed"
    assert told in ran.failure("test_it")


def test_a_mark_of_the_test_covers_whoever_fails(run: Run) -> None:
    ran = run("""
@pytest.mark.xfail(strict=True)
@pytest.mark.ranks(3)
def test_one_fails(rank):
    assert rank.index != 1

@pytest.mark.xfail(strict=True)
@pytest.mark.ranks(3)
def test_one_dies(rank):
    if rank.index == 1:
        os._exit(3)

@pytest.mark.xfail(raises=ZeroDivisionError)
@pytest.mark.ranks(3)
def test_one_fails_in_another_way(rank):
    assert rank.index != 1
""")
    ran.result.assert_outcomes(xfailed=2, failed=1)


def test_a_subtest_that_fails_on_one_rank_is_told_once_with_the_rank(run: Run) -> None:
    pytest.importorskip("_pytest.subtests")
    ran = run("""
@pytest.mark.ranks(3)
def test_it(rank, subtests):
    for n in range(3):
        with subtests.test(n=n):
            assert (rank.index, n) != (2, 1)

import unittest

@pytest.mark.ranks(3)
class TestCase(unittest.TestCase):
    def test_case(self):
        for n in range(3):
            with self.subTest(n=n):
                assert (dist.get_rank(), n) != (2, 1)
""")
    assert ran.result.ret == 1
    assert ran.screen.count("rank 2 failed: assert (2, 1) != (2, 1)") >= 2
    assert ran.screen.count("SUBFAILED(n='1')") + ran.screen.count("SUBFAILED(n=1)") >= 2
    assert "rank 0 failed" not in ran.screen
    assert ran.screen.count("to run it again:") == ran.screen.count("SUBFAIL"), "each by its own"


def test_a_world_that_gives_way_to_others_is_torn_down(run: Run, pytester: pytest.Pytester) -> None:
    run("""
from pathlib import Path

@pytest.fixture(scope="session")
def resource(rank):
    yield
    Path(f"torn-down-{rank.world_size}-{rank.index}").touch()

@pytest.mark.ranks(1, 2, 3, 4, 5, 6)
@pytest.mark.parametrize("turn", [0, 1])
def test_it(resource, turn): ...
""").result.assert_outcomes(passed=12)
    left = {path.name for path in pytester.path.glob("torn-down-*")}
    assert left == {f"torn-down-{size}-{rank}" for size in range(1, 7) for rank in range(size)}
