"""After a test that failed its ranks run the next one, if nothing between them can have been left half done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

IN_STEP = {
    "before_anything": "assert False",
    "on_one_rank": "assert rank.index == 0",
    "after_collectives": "dist.all_reduce(one); dist.barrier(); assert rank.index == 0",
    "by_another_error": "dist.barrier(); {}['key']",
    "after_a_message": """
        if rank.index: dist.send(one, 0)
        else: dist.recv(one, 1)
        pytest.fail("here")""",
    "as_expected": "dist.barrier(); pytest.xfail('one day')",
    "on_one_rank_that_skips": "pytest.skip('none of mine') if rank.index else None",
    "after_async_work": "dist.all_reduce(one, async_op=True).wait(); assert False",
    "having_printed": "print('x'); assert False",
}
NOT_CERTAINLY = {
    "a_broadcast_on_one_rank": """
        if rank.index == 0: dist.broadcast(one, 0)
        assert False""",
    "work_that_nobody_waited_for": "dist.all_reduce(one, async_op=True); assert False",
    "another_group": "dist.barrier(groups[0]); assert False",
    "a_group_of_its_own": "dist.new_group([0]); assert False",
    "a_key": "rank.store.set(f'key-{rank.index}', 'x'); assert False",
    "a_message_that_nobody_took": """
        if rank.index == 0: dist.isend(one, 1)
        assert False""",
    "a_broken_contract": "dist.all_reduce(one if rank.index else torch.ones(2))",
    "a_thread": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); assert False",
    "a_rank_that_exits": "os._exit(3) if rank.index else None",
    "shared_memory": "shared_memory.SharedMemory(create=True, size=8); assert False",
    "the_group_destroyed": "dist.destroy_process_group(); assert False",
}
FILE = """
import threading
from multiprocessing import shared_memory
from pathlib import Path

groups = []

@pytest.fixture(autouse=True, scope="module")
def group(rank):
    groups[:] = [dist.new_group([0, 1])]
    yield

def tell(name, rank):
    with open(f"pids-{rank.index}", "a") as pids:
        pids.write(f"{name} {os.getpid()}\\n")

"""
TEST = """
@pytest.mark.ranks(2)
def test_{name}(rank):
    tell({name!r}, rank)
    one = torch.ones(1)
    {body}

"""


def ranks_kept_after(run: Run, pytester: pytest.Pytester, bodies: dict[str, str], *args: str) -> dict[str, bool]:
    """Of each body whether the test after it ran in the same processes."""
    tests = {name: body.replace("\n        ", "\n    ") for name, body in bodies.items()} | {"last": "pass"}
    ran = run(FILE + "".join(TEST.format(name=name, body=body) for name, body in tests.items()), *args)
    assert ran.outcome("test_last") == "passed"
    assert not any(ran.outcome(f"test_{name}") == "passed" for name in bodies), ran.screen
    told = [(pytester.path / f"pids-{rank}").read_text().split() for rank in range(2)]
    assert [one[0::2] for one in told] == [list(tests)] * 2
    pids = list(zip(*(one[1::2] for one in told), strict=True))
    return {name: pids[place] == pids[place + 1] for place, name in enumerate(bodies)}


def test_ranks_that_are_in_step_are_kept(run: Run, pytester: pytest.Pytester) -> None:
    assert ranks_kept_after(run, pytester, IN_STEP) == dict.fromkeys(IN_STEP, True)


def test_ranks_that_may_not_be_are_not(run: Run, pytester: pytest.Pytester) -> None:
    assert ranks_kept_after(run, pytester, NOT_CERTAINLY) == dict.fromkeys(NOT_CERTAINLY, False)


def test_those_of_a_plan_are_not(run: Run, pytester: pytest.Pytester) -> None:
    """A call that was skipped, say, leaves ranks with other counts than they tell."""
    ran = run(
        """
@pytest.mark.ranks(2, faults=["rank 1: oom at collective.barrier"])
@pytest.mark.parametrize("i", range(2))
def test_it(rank, i):
    with open(f"pids-{rank.index}", "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    try:
        dist.barrier() if rank.index else None
    except MemoryError:
        pass
    assert rank.index
"""
    )
    ran.result.assert_outcomes(failed=2)
    assert all(len(set((pytester.path / f"pids-{rank}").read_text().split())) == 2 for rank in range(2))


@pytest.mark.parametrize("where", ["setup", "teardown"])
def test_a_fixture_that_fails_costs_no_ranks(run: Run, pytester: pytest.Pytester, where: str) -> None:
    ran = run(f"""
from pathlib import Path

@pytest.fixture
def broken(rank):
    dist.barrier()
    assert {where!r} != "setup" or rank.index
    yield
    assert rank.index

@pytest.mark.ranks(2)
def test_it(broken): ...

@pytest.mark.ranks(2)
def test_next(rank):
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2
    Path("ran").write_text("x")
""")
    ran.result.assert_outcomes(passed=2 if where == "teardown" else 1, errors=1)
    assert "its ranks had run 1 test before" not in ran.screen


def test_an_example_that_fails_costs_no_ranks(run: Run, pytester: pytest.Pytester) -> None:
    ran = run("""
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(derandomize=True)  # by luck, or after an earlier session, it is shrunk in a few examples
@given(numbers=st.lists(st.integers(0, 1000)))
def test_sum(rank, numbers):
    with open(f"pids-{rank.index}", "a") as pids:
        pids.write(f"{os.getpid()}\\n")
    total = torch.tensor([sum(numbers)])
    dist.all_reduce(total)
    assert total < 400
""")
    ran.result.assert_outcomes(failed=1)
    assert "assert tensor([400]) < 400" in ran.failure("test_sum"), "shrunk as far as it goes"
    told = [(pytester.path / f"pids-{rank}").read_text().split() for rank in range(2)]
    assert len(told[0]) == len(told[1]) > 20
    assert [len(set(pids)) for pids in told] == [1, 1]


def test_each_test_numbers_its_collectives_from_0(run: Run) -> None:
    ran = run("""
@pytest.mark.ranks(2)
@pytest.mark.parametrize("fails", [0, 1])
def test_before(rank, fails):
    for _ in range(3):
        dist.barrier()
    assert not fails

@pytest.mark.ranks(2)
def test_skips_one(rank):
    dist.all_reduce(torch.ones(1))
    if rank.index == 0:
        dist.barrier()
""")
    headline = ran.failure("test_skips_one").splitlines()[0]
    assert "barrier #1 on 'default'" in headline


def test_a_number_that_was_there_before_is_not_compared_with_what_it_was_then(run: Run) -> None:
    """Rank 1 is faster, and at its first call finds what rank 0 posted for the first call of the test before."""
    run("""
@pytest.mark.ranks(2)
@pytest.mark.parametrize("i", range(20))
def test_it(rank, i):
    if rank.index == 0:
        time.sleep(0.01)
    total = torch.ones(1 + i, dtype=[torch.float32, torch.float64][i % 2])
    dist.all_reduce(total) if i % 3 else dist.broadcast(total, i % 2)
""").result.assert_outcomes(passed=20)
