"""Hypothesis on ranks: the engine runs once, in the controller; one verdict, one shrink."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

HEAD = """
from hypothesis import HealthCheck, Verbosity, assume, given, settings, strategies as st
"""


def test_every_rank_gets_the_same_examples(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(3)
@settings(max_examples=30, deadline=None)
@given(st.integers(), st.lists(st.text()))
def test_it(rank, number, words):
    seen = [None] * 3
    dist.all_gather_object(seen, (number, words))
    assert seen == [(number, words)] * 3
"""
    )
    ran.result.assert_outcomes(passed=1)


def test_a_failure_on_one_rank_is_shrunk_once_to_the_smallest_example(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@settings(deadline=None, database=None, report_multiple_bugs=False)
@given(n=st.integers(0, 500))
def test_it(rank, n):
    assert rank.index == 0 or n < 137
"""
    )
    text = ran.failure("test_it")
    assert "rank 1 failed" in text
    assert "n=137," in ran.screen
    assert "rank=<on each rank>" in ran.screen


def test_shrinking_goes_on_past_examples_that_kill_and_hang(run: Run) -> None:
    ran = run(
        HEAD
        + """
from hypothesis import Phase

phases = [Phase.generate, Phase.shrink]
shrinks = settings(deadline=None, database=None, max_examples=30, phases=phases, report_multiple_bugs=False)

@pytest.mark.ranks(2, deadline=1)
@shrinks
@given(n=st.integers(0, 12))
def test_kill(rank, n):
    if n >= 3 and rank.index == 1:
        os._exit(7)
    dist.barrier()

@pytest.mark.ranks(2)
@shrinks
@given(n=st.integers(0, 12))
def test_hang(rank, n):
    if n < 3 or rank.index == 0:
        dist.barrier()

@pytest.mark.ranks(2)
def test_next(rank):
    rank.barrier()
"""
    )
    assert "rank 1 exited with code 7" in ran.failure("test_kill")
    assert "rank 1 leaves out barrier" in ran.failure("test_hang")
    assert ran.screen.count("n=3,") >= 2
    assert ran.outcome("test_next") == "passed"


def test_assume_on_all_ranks_rejects_the_example(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@settings(deadline=None, max_examples=20)
@given(n=st.integers(0, 1000))
def test_it(rank, n):
    assume(n % 2 == 0)
    assert n % 2 == 0
"""
    )
    ran.result.assert_outcomes(passed=1)


def test_interactive_draws_are_refused_with_the_remedy(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@given(data=st.data())
def test_it(rank, data): ...
"""
    )
    assert "data=st.data() draws inside the test, where each rank would draw its own; draw it in @given" in ran.screen


def test_methods_parameters_and_fixtures_beside_given(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.fixture(scope="module")
def offset(rank): return 100 * rank.index

class TestIt:
    @pytest.mark.ranks(2)
    @pytest.mark.parametrize("word", ["x", "y"])
    @settings(deadline=None, max_examples=10)
    @given(n=st.integers())
    def test_method(self, rank, offset, word, n):
        assert offset == 100 * rank.index
        assert word in "xy"
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_examples_of_an_empty_body_take_next_to_nothing(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck), database=None)
@given(n=st.integers())
def test_it(rank, n): ...
"""
    )
    seconds = float(str(ran.cases["test_it"].get("time")))
    # 100 a second is the promise on an idle machine; with thirty others at two processors 22 were seen.
    assert 300 / seconds > 5, f"{300 / seconds:.0f} examples a second"


def test_fresh_ranks_do_not_count_against_an_examples_deadline(run: Run) -> None:
    # Every example that kills a rank is followed by a fresh world, whose fixture alone exceeds the deadline.
    ran = run("""
import re
import os, time
from hypothesis import given, settings, strategies as st

@pytest.fixture(scope="module")
def slow():
    time.sleep(0.5)

@pytest.mark.ranks(2)
@settings(database=None, derandomize=True, deadline=400, report_multiple_bugs=False)
@given(n=st.integers(0, 20))
def test_it(rank, slow, n):
    if rank.index == 1 and n > 10:
        os._exit(3)
""")
    failure = ran.failure("test_it")
    assert failure.startswith("rank 1 exited with code 3")
    assert "n=11" in failure


def test_a_slow_body_exceeds_the_deadline_by_its_own_time(run: Run) -> None:
    ran = run("""
import time
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(database=None, derandomize=True, max_examples=5, deadline=300)
@given(n=st.booleans())
def test_it(rank, n):
    if rank.index == 1 and n:
        time.sleep(1)
""")
    failure = ran.failure("test_it")
    told = re.match(r"DeadlineExceeded: Test took (9\d{2}|1\d{3})\.\d+ms, which exceeds the deadline of 300", failure)
    assert told, failure
    assert "n=True" in failure


def test_ranks_are_not_held_to_the_deadline_that_nobody_has_named(run: Run) -> None:
    ran = run("""
import time
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(settings.get_profile("default"), database=None, derandomize=True, max_examples=5)
@given(n=st.booleans())
def test_it(rank, n):
    if rank.index == 1 and n:
        time.sleep(0.5)
""")
    ran.result.assert_outcomes(passed=1)


def test_what_cannot_be_repeated_is_called_unreliable(run: Run) -> None:
    ran = run("""
from pathlib import Path
from hypothesis import given, settings, strategies as st

ONCE = Path("once").absolute()

@pytest.mark.ranks(2)
@settings(database=None, derandomize=True)
@given(n=st.integers(0, 300))
def test_it(rank, n):
    if rank.index == 1 and not ONCE.exists():
        ONCE.touch()
        raise ValueError("only once")
""")
    failure = ran.failure("test_it")
    assert failure.startswith("FlakyFailure: Hypothesis")
    assert "unreliable" in failure.splitlines()[0]
    assert "rank 1 failed: ValueError: only once" in failure


def test_two_distinct_failures_are_both_shown(run: Run) -> None:
    ran = run("""
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(database=None, derandomize=True)
@given(n=st.booleans())
def test_it(rank, n):
    if rank.index == 1:
        raise ValueError("odd") if n else KeyError("even")
""")
    failure = ran.failure("test_it")
    assert "rank 1 failed: ValueError: odd" in failure
    assert "rank 1 failed: KeyError: 'even'" in failure


def test_a_group_that_the_body_or_its_fixtures_raise_is_shown_whole(run: Run) -> None:
    ran = run("""
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(database=None, derandomize=True, max_examples=5)
@given(n=st.booleans())
def test_body(rank, n):
    if rank.index == 1:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])

@pytest.fixture(scope="module")
def one():
    yield
    raise ValueError("one")

@pytest.fixture(scope="module")
def two():
    yield
    raise KeyError("two")

@pytest.mark.ranks(2)
@settings(database=None, derandomize=True, max_examples=5)
@given(n=st.booleans())
def test_teardown(rank, one, two, n): ...
""")
    for test in ("test_body", "test_teardown"):
        failure = ran.failure(test)
        assert "ValueError: one" in failure
        assert "KeyError: 'two'" in failure
