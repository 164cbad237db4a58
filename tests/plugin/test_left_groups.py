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
