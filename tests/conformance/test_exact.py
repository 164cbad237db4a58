"""Exact equality of payloads."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy
import pytest
import torch

from rankdrill.conformance.exact import difference
from rankdrill.conformance.payloads import PAYLOADS, TENSOR_PAYLOADS


@pytest.mark.parametrize(
    ("got", "wanted", "said"),
    [
        ([1, 2], [1, 3], "result[1] is 2, not 3"),
        ([1], [1, 2], "result has 1 items, not 2"),
        ({"a": [1]}, {"a": [True]}, "result['a'][0] is 1, not True"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "result has the keys ['a', 'b'], not ['b', 'a']"),
        (torch.zeros(2), torch.zeros(3), "result is Tensor torch.float32 (2,), not Tensor torch.float32 (3,)"),
        (numpy.zeros(1), torch.zeros(1), "result is ndarray float64 (1,), not Tensor torch.float32 (1,)"),
        ((1,), [1], "result is (1,), not [1]"),
        (None, b"", "result is None, not b''"),
    ],
)
def test_it_says_where_payloads_first_differ(got: Any, wanted: Any, said: str) -> None:
    assert difference(got, wanted) == said


def test_the_order_of_keys_is_looked_at_where_it_is_asked_for() -> None:
    got, wanted = [{"a": 1, "b": 2}], [{"b": 2, "a": 1}]
    assert difference(got, wanted, ordered=False) is None
    assert difference([OrderedDict(got[0])], [OrderedDict(wanted[0])], ordered=False) is not None
    assert difference([{"a": 1, "c": 2}], wanted, ordered=False) is not None


@pytest.mark.parametrize(("name", "payload"), [*PAYLOADS.items(), *TENSOR_PAYLOADS.items()])
def test_payloads_can_be_derived_anywhere_and_tell_ranks_and_calls_apart(name: str, payload: Any) -> None:
    made = [payload.make(rank, 4, 1) for rank in range(4)]
    assert difference(made, [payload.make(rank, 4, 1) for rank in range(4)]) is None
    if payload is not TENSOR_PAYLOADS["empty"]:
        assert difference(payload.make(0, 4, 1), payload.make(1, 4, 1)) is not None
        assert difference(payload.make(3, 4, 1), payload.make(3, 4, 2)) is not None


def test_payloads_fit_the_room_they_claim() -> None:
    import pickle

    for payload in PAYLOADS.values():
        assert max(len(pickle.dumps(payload.make(rank, 4, 1))) for rank in range(4)) <= payload.room
