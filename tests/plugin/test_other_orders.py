"""Messages that came in a lucky order, in tests on ranks: one finding, and nothing done twice."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

COLLECT = """
import time

def collect(late=0.2):
    rank, values, value = dist.get_rank(), [], torch.zeros(1)
    if rank:
        time.sleep(late * rank)
        dist.send(torch.tensor([float(rank)]), dst=0)
        values = [1.0, 2.0]
    while len(values) < 2:
        dist.recv(value)
        values.append(value.item())
    dist.barrier()  # else the next round might begin in this one
    return values
"""


def test_an_assertion_that_holds_by_luck(run: Run) -> None:
    ran = run(
        COLLECT
        + """
@pytest.mark.ranks(3)
def test_it(rank):
    assert collect() == [1, 2]
"""
    )
    first, *rest = ran.failure("test_it").splitlines()
    assert first.startswith("message race: rank 0 receives from anybody (tag 0), and would have raised AssertionError")
    assert any(line.startswith("ranks 1, 2 send to rank 0 (tag 0), and nothing orders the two") for line in rest)


def test_one_that_asks_for_no_order_passes_and_runs_once(run: Run) -> None:
    ran = run(
        COLLECT
        + """
@pytest.fixture
def once(tmp_path):
    path = tmp_path / f"runs-{dist.get_rank()}"
    yield path
    assert path.read_text() == "once"

@pytest.mark.ranks(3)
def test_it(rank, once, capsys):
    values = collect(late=0)
    print("got", sorted(values))
    with once.open("a") as file:
        file.write("once")
    assert sorted(values) == [1, 2]
    assert capsys.readouterr().out.count("got") == 1

@pytest.mark.ranks(3)
def test_with_the_same_ranks(rank):
    import multiprocessing
    assert collect(late=0) and not multiprocessing.active_children()
    assert sum(collect(late=0)) == 3
"""
    )
    ran.result.assert_outcomes(passed=2)


def test_hypothesis_draws_on(run: Run) -> None:
    ran = run(
        "from hypothesis import given, settings, strategies as st\n"
        + COLLECT
        + """
@pytest.mark.ranks(3)
@settings(max_examples=5, deadline=None)
@given(times=st.integers(1, 3))
def test_it(rank, times):
    for _ in range(times):
        assert sum(collect(late=0)) == 3
"""
    )
    ran.result.assert_outcomes(passed=1)
