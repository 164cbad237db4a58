"""One `@given` draws payloads, world size and faults: they fit each other, and shrink together."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankdrill.plugin.engine import count_only, engine_for_ranks
from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

HEAD = """
from hypothesis import HealthCheck, Phase, assume, event, example, given, note, settings, strategies as st, target
from rankdrill.faults import Plan
from rankdrill_strategies import arrays, per_rank, picklables, plans, worlds

checks = [HealthCheck.too_slow]
few = settings(deadline=None, database=None, derandomize=True, max_examples=25, suppress_health_check=checks)
"""


def test_payloads_and_sizes_fit_the_drawn_world(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(worlds(min_ranks=2, max_ranks=5))
@settings(few, max_examples=200)
@given(payloads=per_rank(picklables(), big=st.just(b"x" * 5000)), n=worlds())
def test_it(rank, world_size, payloads, n):
    assert len(payloads) == dist.get_world_size() == rank.world_size == world_size == n
    event(f"{n} ranks")
""".replace("n=worlds()", "n=worlds(max_ranks=9)"),
        "--hypothesis-show-statistics",
    )
    ran.result.assert_outcomes(passed=1)
    assert {"2 ranks", "3 ranks", "4 ranks", "5 ranks"} <= set(re.findall(r"\d ranks", ran.screen))


@pytest.mark.nightly
def test_all_three_shrink_and_are_printed_as_one_writes_them(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(worlds(max_ranks=5))
@settings(few, max_examples=60)
@given(n=st.integers(0, 99))
def test_size(rank, n):
    assert rank.world_size < 3 or n < 17

@pytest.mark.ranks(worlds(min_ranks=2), faults=plans(strikes=["skip", "delay"], steps=["collective.all_reduce"]))
@few
@given(n=st.integers(0, 99))
def test_faults(rank, n):
    dist.all_reduce(torch.ones(1))
    dist.barrier()
"""
    )
    failure = ran.failure("test_size")
    assert "n=17," in failure
    assert "@pytest.mark.ranks(3)" in failure
    failure = ran.failure("test_faults")
    assert "n=0," in failure
    assert "@pytest.mark.ranks(2, faults=['rank 0: skip at collective." in failure
    assert "distinct failures" not in failure


def test_drawn_faults_strike_where_the_example_has_steps(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(worlds(max_ranks=3), faults=plans(strikes=["delay"], max_seconds=0.001, min_faults=1, max_nth=9))
@few
@given(calls=st.integers(1, 4))
def test_it(rank, calls):
    for _ in range(calls):
        dist.barrier()
""",
        "--hypothesis-show-statistics",
    )
    ran.result.assert_outcomes(passed=1)
    assert "25 passing" in ran.screen
    assert "found no step to strike" not in ran.screen


def test_a_drawn_plan_strikes_and_one_that_cannot_proves_nothing(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@few
@given(plan=plans(strikes=["skip"], steps=["collective.barrier"], max_nth=1, max_faults=1))
def test_strikes(rank, plan):
    dist.barrier()

@pytest.mark.ranks(2)
@few
@given(plan=plans(strikes=["skip"], steps=["collective.broadcast"], min_faults=1))
def test_cannot(rank, plan):
    dist.barrier()

@pytest.mark.ranks(2, faults="rank 0: delay(0.001) before collective.broadcast")
@few
@given(n=st.integers())
def test_written(rank, n):
    dist.barrier()

@pytest.mark.ranks(2)
@few
@given(plan=st.just(Plan.parse("rank 7: skip at collective.barrier")))
def test_of_no_such_rank(rank, plan): ...
""",
    )
    assert "plan=Plan.parse('rank 0: skip at collective.barrier" in ran.failure("test_strikes")
    assert "Unable to satisfy assumptions" in ran.failure("test_cannot")
    assert "collective.broadcast" in ran.failure("test_written")  # one that is written has to strike
    assert "rank 7" in ran.failure("test_of_no_such_rank")


def test_an_explicit_example_says_its_world(run: Run) -> None:
    ran = run(
        HEAD
        + """
only = settings(few, phases=[Phase.explicit])

@pytest.mark.ranks(worlds())
@only
@example(payloads=[1, 2, 3])
@given(payloads=per_rank(st.integers()))
def test_by_payloads(rank, payloads):
    assert rank.world_size == 3

@pytest.mark.ranks(worlds())
@only
@example(n=2)
@given(n=worlds())
def test_by_size(rank, n):
    assert rank.world_size == 2

@pytest.mark.ranks(st.sampled_from([3, 2]), faults=plans())
@only
@example(n=7)
@given(n=st.integers())
def test_not(rank, n):
    assert rank.world_size == 3
"""
    )
    ran.result.assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("marker", "given", "told"),
    [
        ("worlds()", "", "the marker's world size is a Hypothesis strategy, and nothing draws from it"),
        ("2, faults=plans()", "", "the marker's faults is a Hypothesis strategy, and nothing draws from it"),
        ("worlds(), 2", "@given(n=st.none())", "a drawn world size stands alone"),
        ("st.nothing()", "@given(n=st.none())", "has no world size to draw"),
        ("st.just(0)", "@given(n=st.none())", "the marker drew 0, which is no world size"),
    ],
)
def test_what_cannot_be_drawn_is_refused_when_tests_are_collected(run: Run, marker: str, given: str, told: str) -> None:
    ran = run(f"{HEAD}\n@pytest.mark.ranks({marker})\n{given}\ndef test_it(rank{', n' if given else ''}): ...\n")
    screen = ran.screen + str(ran.result.stderr)
    assert told in screen
    assert "INTERNALERROR" not in screen


@pytest.mark.nightly
def test_sizes_that_are_not_the_worlds_are_refused(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@few
@given(n=worlds(min_ranks=3))
def test_it(rank, n): ...

@given(plan=plans())
def test_nowhere(plan): ...
"""
    )
    assert "worlds(min_ranks=3, max_ranks=4) in a test on 2 ranks" in ran.failure("test_it")
    assert "give plans(4), or a strategy for the size" in ran.failure("test_nowhere")


def test_two_mistakes_are_two_and_one_is_one_whatever_the_world(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@settings(few, max_examples=300)
@given(n=st.integers())
def test_two_lines(rank, n):
    if n > 100:
        raise ValueError("high")
    if n < -100:
        raise ValueError("low")

@pytest.mark.ranks(worlds())
@few
@given(n=st.integers(0, 9))
def test_one_line(rank, n):
    assert rank.index != rank.world_size - 1 or n < 3, f"on rank {rank.index}"
"""
    )
    failure = ran.failure("test_two_lines")
    assert "Hypothesis found 2 distinct failures" in failure
    for told in ("ValueError: high", "ValueError: low", "n=101,", "n=-101,"):
        assert told in failure
    failure = ran.failure("test_one_line")
    assert "distinct failures" not in failure
    assert "@pytest.mark.ranks(1)" in failure
    assert "n=3," in failure


def test_notes_are_of_the_final_example_and_events_and_targets_reach_the_engine(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@few
@given(n=st.integers(0, 99))
def test_notes(rank, n):
    note(f"noted on rank {rank.index}: {n}")
    print(f"printed on rank {rank.index}: {n}")
    assert n < 30

@pytest.mark.ranks(2)
@few
@given(n=st.integers(0, 99))
def test_events(rank, n):
    event("always", rank.index)
    target(float(n + rank.index), label="height")
""",
        "--hypothesis-show-statistics",
    )
    ran.failure("test_notes")
    for rank in (0, 1):
        assert re.findall(rf"noted on rank {rank}: (\d+)", ran.screen) == ["30"]
        assert re.findall(rf"printed on rank {rank}: (\d+)", ran.screen) == ["30"]
    assert ran.outcome("test_events") == "passed"
    assert "100.00%, always" in ran.screen
    assert "Highest target score: 100  (label='height')" in ran.screen
    properties = [entry.get("name") for entry in ran.cases["test_events"].iter("property")]
    assert len(properties) == len(set(properties))


def test_what_draws_or_cannot_be_sent_is_refused_with_the_remedy(run: Run) -> None:
    ran = run(
        HEAD
        + """
import random
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

@pytest.mark.ranks(2)
@given(r=st.randoms())
def test_randoms(rank, r): ...

@pytest.mark.ranks(2)
@given(r=st.randoms(use_true_random=True))
def test_true_randoms(rank, r): ...

@pytest.mark.ranks(2)
@given(f=st.functions(like=lambda x: 1, returns=st.integers()))
def test_functions(rank, f): ...

class Machine(RuleBasedStateMachine):
    @rule(n=st.integers())
    def step(self, n): ...

@pytest.mark.ranks(2)
def test_machine(rank):
    run_state_machine_as_test(Machine)

@pytest.mark.ranks(2)
def test_inner(rank):
    @few
    @given(n=st.integers(0, 99))
    def inner(n):
        seen = [None, None]
        dist.all_gather_object(seen, n)
        assert seen == [n, n]
    inner()
"""
    )
    assert "r=st.randoms() draws inside the test" in ran.failure("test_randoms")
    assert "cannot be sent to the ranks" in ran.failure("test_functions")
    assert "run_state_machine_as_test draws its rules while it runs" in ran.failure("test_machine")
    assert "examples.py" not in ran.failure("test_randoms") + ran.failure("test_functions")
    assert "r=st.randoms() draws inside the test" in ran.failure("test_true_randoms")
    assert ran.outcome("test_inner") == "passed"


def test_fixtures_are_set_up_and_torn_down_once_in_each_world(run: Run) -> None:
    ran = run(
        HEAD
        + """
from pathlib import Path

LOG = Path("log").absolute()

@pytest.fixture
def mine(rank):
    if rank.index == 0:
        with LOG.open("a") as log: print("up", rank.world_size, file=log)
    yield
    if rank.index == 0:
        with LOG.open("a") as log: print("down", rank.world_size, file=log)

@pytest.mark.ranks(worlds())
@settings(few, suppress_health_check=list(HealthCheck))
@given(n=st.integers())
def test_it(mine, rank, n): ...

def test_log():
    assert sorted(LOG.read_text().splitlines()) == [f"{way} {n}" for way in ("down", "up") for n in range(1, 5)]

@pytest.fixture
def broken(rank):
    yield
    assert rank.world_size < 2, "not torn down"

@pytest.mark.ranks(worlds(max_ranks=2))
@settings(few, suppress_health_check=list(HealthCheck))
@given(n=st.integers())
def test_teardown(broken, rank, n): ...
"""
    )
    assert ran.outcome("test_log") == "passed"
    assert "not torn down" in ran.failure("test_teardown")


def test_arrays_arrive_as_they_were_drawn(run: Run) -> None:
    ran = run(
        HEAD
        + """
import numpy as np

views = st.integers(1, 5).map(lambda n: np.arange(n * 3).reshape(n, 3)[::-1, ::2])

@pytest.mark.ranks(2)
@few
@given(view=views)
def test_it(rank, view):
    assert view.strides == (-24, 16)
"""
    )
    ran.result.assert_outcomes(passed=1)


def test_what_does_not_matter_is_explained_without_lines_of_this_process(run: Run) -> None:
    ran = run(
        HEAD
        + """
@pytest.mark.ranks(2)
@few
@given(n=st.integers(0, 99), word=st.text())
def test_it(rank, n, word):
    assert n < 30
"""
    )
    failure = ran.failure("test_it")
    assert re.search(r"word='',? +# or any other generated value", failure)
    assert "always and only run" not in failure


def test_bringing_up_worlds_is_no_slow_drawing() -> None:
    drawn = []

    @settings(database=None, max_examples=20)
    @given(st.integers())
    def look(n: int) -> None:
        count_only(0.0, since=time.perf_counter() - 0.5)  # half a second for the example's world
        drawn.append(n)

    with engine_for_ranks(lambda: False):
        look()
    assert len(drawn) >= 20
