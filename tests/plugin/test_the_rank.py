"""The fixture `rank` is the rank's number, wherever a number can be."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankdrill.plugin.on_rank.fixtures import Rank
from tests.plugin.test_like_any_test import Run


@pytest.fixture
def two() -> Rank:
    return Rank(2, 4, torch.device("cpu"), dist.HashStore())  # type: ignore[attr-defined]


def test_it_compares_and_counts_as_its_number(two: Rank) -> None:
    assert two == 2
    assert two != 1
    assert 1 < two <= 2
    assert not Rank(0, 4, two.device, two.store)
    assert two + 1 == 3
    assert two % 2 == 0
    assert list(range(two)) == [0, 1]
    assert ["a", "b", "c"][two] == "c"
    assert {2: "mine"}[two] == "mine"
    assert two in (1, 2)
    assert torch.full((1,), two).item() == 2


def test_it_is_written_as_its_number_and_shown_as_a_rank(two: Rank) -> None:
    assert (f"{two}", f"{two:03}", str(two), "%d" % two, json.dumps([two])) == ("2", "002", "2", "2", "[2]")  # noqa: UP031
    assert repr(two) == "<rank 2 of 4>"


@pytest.mark.parametrize("sent", [copy.copy, copy.deepcopy, lambda rank: pickle.loads(pickle.dumps(rank))])
def test_the_number_goes_where_it_is_sent(two: Rank, sent: Any) -> None:
    there = sent(two)
    assert (type(there), there) == (int, 2)


def test_it_is_not_changed(two: Rank) -> None:
    with pytest.raises(FrozenInstanceError):
        two.world_size = 8  # type: ignore[misc]


def test_in_a_test_it_is_that_rank(run: Run) -> None:
    ran = run("""
from rankdrill.gathers import all_gather_object

@pytest.mark.ranks(3)
def test_number(rank):
    assert rank == dist.get_rank() == rank.index
    tensor = torch.full((1,), rank)
    dist.broadcast(tensor, src=2)
    assert tensor.item() == 2
    numbers = [None] * 3
    all_gather_object(numbers, rank)
    assert numbers == [0, 1, 2]

@pytest.mark.ranks(3)
def test_shown(rank):
    assert rank == 1
""")
    assert ran.outcome("test_number") == "passed"
    assert "assert <rank 0 of 3> == 1" in ran.failure("test_shown")
