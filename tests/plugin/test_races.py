"""Tests that go by whose message came first: a failure that says so, and how to say that it is meant."""

from __future__ import annotations

from collections.abc import Callable

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

COLLECTS = """
@pytest.mark.ranks(3{more})
def test_it(rank):
    rows = [torch.zeros(2) for _ in range(2)]
    if rank.index == 0:
        for row in rows:
            dist.recv(row)
        {then}
    else:
        dist.send(torch.full((2,), float(rank.index)), dst=0)

@pytest.mark.ranks(3)
def test_after(rank):
    dist.all_reduce(torch.ones(1))
"""


def test_the_order_in_which_messages_come(run: Run) -> None:
    ran = run(COLLECTS.format(more="", then="assert len(rows) == 2"))
    ran.result.assert_outcomes(failed=1, passed=1)
    assert "message race: rank 0 receives from anybody (tag 0), and keeps what it receives in the order" in ran.screen
    assert "ranks 1, 2 send to rank 0 (tag 0), and nothing orders the two" in ran.screen
    assert "if any of them may come first" in ran.screen


def test_where_the_order_does_not_matter_or_is_said_not_to(run: Run) -> None:
    run(COLLECTS.format(more="", then="assert sum(rows).tolist() == [3, 3]")).result.assert_outcomes(passed=2)
    run(COLLECTS.format(more=", contracts=False", then="assert len(rows) == 2")).result.assert_outcomes(passed=2)
