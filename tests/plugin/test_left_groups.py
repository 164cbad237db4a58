"""Tests that make groups again and again: a failure where they leave them, none where these are for the next test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugin.conftest import Ran

Run = Callable[..., Ran]

LEAVES = """
@pytest.mark.ranks(2)
def test_it(rank{more}):
    for _ in range(8):
        dist.barrier(dist.new_group())

@pytest.mark.ranks(2)
def test_after(rank):
    dist.all_reduce(torch.ones(1))
"""

BY_FIXTURES = """
@pytest.fixture(scope="module")
def shared(rank):
    groups = []
    for _ in range(8):
        groups.append(dist.new_group())
        dist.barrier(groups[-1])
    yield groups
    for group in groups:
        dist.destroy_process_group(group)

@pytest.fixture
def made():
    groups = []
    yield groups
    for group in groups:
        dist.destroy_process_group(group)

@pytest.mark.ranks(2)
def test_first(rank, shared, made):
    for _ in range(8):
        made.append(dist.new_group())
        dist.barrier(made[-1])

@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", range(8))
def test_more(rank, shared, number):
    dist.barrier(shared[number])
    dist.barrier(dist.new_group())
"""

EXAMPLES = """
from hypothesis import given, settings, strategies as st

@pytest.mark.ranks(2)
@settings(max_examples=20, deadline=None, database=None)
@given(number=st.integers())
def test_it(rank, number):
    dist.barrier(dist.new_group())
"""


@pytest.mark.parametrize("more", ["", ", tmp_path"])
def test_a_test_that_leaves_groups_fails(run: Run, more: str) -> None:
    ran = run(LEAVES.format(more=more))
    assert "leaked group: ranks 0, 1 made groups of ranks 0, 1 again and again, and never destroyed 8" in ran.screen
    assert "test_it.py:" in ran.screen
    assert ran.outcome("test_after") == "passed"


def test_groups_of_fixtures_and_one_for_each_test_are_right(run: Run) -> None:
    ran = run(BY_FIXTURES)
    assert "leaked group" not in ran.screen
    assert ran.outcome("test_first") == "passed"
    assert [ran.outcome(f"test_more[{number}]") for number in range(8)] == ["passed"] * 8


def test_one_group_for_each_example_is_right(run: Run) -> None:
    ran = run(EXAMPLES)
    assert ran.outcome("test_it") == "passed", ran.screen


HELD_NO_MORE = """
import unittest

pids = []

def note():
    pids.append(os.getpid())
    assert len(set(pids)) == 1

@pytest.fixture
def made():
    note()
    yield dist.new_group()

@pytest.mark.ranks(2)
def test_a_fixtures(made):
    dist.barrier(made)

@pytest.mark.ranks(2)
class TestOfUnittest(unittest.TestCase):
    def setUp(self):
        note()
        self.group = dist.new_group()

    def test_of_unittest(self):
        dist.barrier(self.group)

@pytest.mark.ranks(2)
class TestPlain:
    def test_plain(self):
        note()
        self.group = dist.new_group()
        dist.all_reduce(torch.ones(1), group=self.group, async_op=True).wait()

@pytest.mark.ranks(2)
def test_in_a_model():
    note()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2), process_group=dist.new_group())
    model(torch.ones(1, 2)).sum().backward()
    model.itself = [model]

@pytest.mark.ranks(2)
def test_in_a_circle():
    note()
    group = dist.new_group()
    try:
        dist.all_gather_object([], 0, group=group)
    except Exception as error:
        caught = error
    kept = [group]
    kept.append(kept)

@pytest.mark.ranks(2)
def test_skipped():
    note()
    group = dist.new_group()
    pytest.skip("enough")

@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", range(2))
def test_after(number):
    note()
    assert len(pids) == 7 + number
"""


def test_groups_that_nobody_holds_any_more_keep_the_ranks(run: Run) -> None:
    ran = run(HELD_NO_MORE, "-v")
    ran.result.assert_outcomes(passed=7, skipped=1)
    assert "gets fresh ranks" not in ran.screen


FOUND_MADE = """
import library

@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", range(3))
def test_it(number):
    assert library.local is None
    library.make()
    dist.barrier(library.local)
"""


def test_a_library_that_keeps_a_group_never_finds_it_made(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        library="""
        import torch.distributed as dist

        local = None

        def make():
            global local
            assert local is None, "already initialised"
            local = dist.new_group()
        """
    )
    ran = run(FOUND_MADE, "-v")
    ran.result.assert_outcomes(passed=3)
    assert ran.screen.count("left a process group of all ranks, held by library.local: the next test gets") == 3


KEEPS_ONE = """
@pytest.mark.ranks(2{more})
def test_it(rank):
    dist.barrier(dist.new_group())

@pytest.fixture(scope="module")
def shared(rank):
    group = dist.new_group()
    yield group
    dist.destroy_process_group(group)

@pytest.mark.ranks(2{more})
def test_after(rank, shared):
    dist.barrier(shared)
"""


@pytest.mark.parametrize(
    ("more", "options"),
    [(', contracts="strict"', ()), ("", ("--strict-contracts",)), (', contracts="strict"', ("--strict-contracts",))],
)
def test_strictly_each_is_a_failure(run: Run, more: str, options: tuple[str, ...]) -> None:
    ran = run(KEEPS_ONE.format(more=more), *options)
    assert (ran.outcome("test_it"), ran.outcome("test_after")) == ("failed", "passed")
    assert "leaked group: ranks 0, 1 made a group of ranks 0, 1, and never destroyed it" in ran.failure("test_it")
    assert 'contracts=True where "strict" or --strict-contracts asks for it' in ran.failure("test_it")


@pytest.mark.parametrize(
    ("more", "options"),
    [("", ()), (", contracts=False", ("--strict-contracts",)), (', contracts="strict"', ("--no-contracts",))],
)
def test_not_strictly_one_is_no_failure(run: Run, more: str, options: tuple[str, ...]) -> None:
    run(KEEPS_ONE.format(more=more), *options).result.assert_outcomes(passed=2)


def test_strict_and_not_at_all_is_refused(run: Run) -> None:
    ran = run(KEEPS_ONE.format(more=""), "--no-contracts", "--strict-contracts")
    assert "--no-contracts and --strict-contracts contradict each other; give one of them" in ran.result.stderr.str()
    assert "Traceback" not in ran.result.stderr.str()
