"""What goes to the ranks and what comes back."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.errors import UsageError
from rankdrill.worlds import Verdict
from tests.worlds import bodies


def test_values_come_in_rank_order(four: World) -> None:
    outcome = four.run(dist.get_rank)
    assert outcome.unwrap() == [0, 1, 2, 3]
    assert outcome.ok
    assert outcome.verdict is Verdict.TOGETHER
    assert outcome.culprits == outcome.victims == ()
    assert outcome.summary() == "4 ranks returned"


def test_functions_of_a_module(four: World) -> None:
    assert four.run(bodies.total, 0.5).unwrap() == [8.0] * 4


def test_lambdas_closures_and_partials(four: World) -> None:
    offset = 10

    def body(factor: int) -> int:
        return factor * dist.get_rank() + offset

    assert four.run(lambda: dist.get_rank() + offset).unwrap() == [10, 11, 12, 13]
    assert four.run(body, 2).unwrap() == [10, 12, 14, 16]
    assert four.run(partial(body, 3)).unwrap() == [10, 13, 16, 19]


def test_classes_of_a_test_function(two: World) -> None:
    class Local:
        def __init__(self, rank: int) -> None:
            self.rank = rank

    assert [value.rank for value in two.run(lambda: Local(dist.get_rank())).unwrap()] == [0, 1]


def test_tensors_and_arrays(two: World) -> None:
    def body(array: np.ndarray[Any, Any]) -> tuple[torch.Tensor, np.ndarray[Any, Any]]:
        return torch.arange(3) + dist.get_rank(), array + dist.get_rank()

    for rank, (tensor, array) in enumerate(two.run(body, np.zeros(2)).unwrap()):
        assert torch.equal(tensor, torch.arange(3) + rank)
        assert array.tolist() == [rank, rank]


def test_arguments_and_values_larger_than_any_buffer(two: World) -> None:
    sent = np.arange(8_000_000, dtype=np.uint8)
    for value in two.run(lambda got: got[::-1].copy(), sent).unwrap():
        assert np.array_equal(value, sent[::-1])


def test_a_value_that_cannot_be_pickled_is_said_so(two: World) -> None:
    outcome = two.run(threading.Lock)
    assert [type(rank.error) for rank in outcome.ranks] == [UsageError, UsageError]
    assert "rank 1 returned a lock that cannot be pickled" in str(outcome.ranks[1].error)


def test_a_value_that_only_the_rank_can_load_is_said_so(two: World, tmp_path: Any) -> None:
    (tmp_path / "only_there.py").write_text("class Thing:\n    pass\n")

    def body(place: str) -> object:
        import sys

        sys.path.append(place)
        return __import__("only_there").Thing()

    outcome = two.run(body, str(tmp_path))
    assert isinstance(outcome.ranks[0].error, UsageError)
    assert "rank 0 returned a value that cannot be loaded here" in str(outcome.ranks[0].error)


def test_a_body_that_cannot_be_sent_is_refused(two: World) -> None:
    two.run(bodies.rank)
    lock = threading.Lock()
    with pytest.raises(UsageError, match="cannot be sent to the ranks"):
        two.run(lambda: lock.locked())
    assert two.warm, "nothing was sent, so the ranks are as they were"
    assert two.run(bodies.rank).unwrap() == [0, 1]


def test_functions_that_are_seen_still_obey_the_default_device(two: World) -> None:
    def body() -> list[str]:
        torch.set_default_device("meta")
        made = [torch.ones(2), torch.zeros(2), torch.empty(2), torch.full((2,), 1.0)]
        with torch.device("cpu"):
            made.append(torch.ones(2))
        return [tensor.device.type for tensor in made]

    assert two.run(body).unwrap() == [["meta"] * 4 + ["cpu"]] * 2
