"""What is right, by name: of which payloads, and of which nothing is."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import cloudpickle
import pytest
import torch

from rankdrill.conformance import Payload
from rankdrill.conformance.exact import difference
from rankdrill.conformance.gives import GIVES, NOT_LOOKED_AT
from rankdrill.conformance.kit.samples.chosen import SAMPLES
from rankdrill.conformance.kit.suite import described
from rankdrill.errors import UsageError

ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])


@pytest.mark.parametrize(
    ("gives", "payloads", "right"),
    [
        ("concatenated", [[1], [], [2, 3]], [1, 2, 3]),
        ("concatenated", [ONE, TWO[:0], TWO], torch.tensor([1.0, 2, 3, 5])),
        ("concatenated", [{"a": ONE, "b": [1]}, {"b": [], "a": TWO}], {"a": torch.tensor([1.0, 2, 3, 5]), "b": [1]}),
        ("stacked", [ONE, TWO], torch.tensor([[1.0, 2], [3, 5]])),
        ("stacked", [{"a": ONE}, {"a": TWO}], {"a": torch.tensor([[1.0, 2], [3, 5]])}),
        ("sum", [1, 2.5], 3.5),
        ("sum", [ONE, TWO], torch.tensor([4.0, 7])),
        ("sum", [{"a": ONE, "n": 1}, {"n": 4, "a": TWO}], {"a": torch.tensor([4.0, 7]), "n": 5}),
        ("sum", [{"a": 1}, {"b": 4}, {"a": 2}], {"a": 3, "b": 4}),
        ("mean", [1, 2], 1.5),
        ("mean", [{"a": ONE, "n": 1}, {"n": 4, "a": TWO}], {"a": torch.tensor([2.0, 3.5]), "n": 2.5}),
    ],
)
def test_what_is_right(gives: str, payloads: list[Any], right: Any) -> None:
    assert difference(GIVES[gives](1, payloads), right, ordered=False) is None
    assert difference(GIVES[f"{gives} at dst"](0, payloads), right, ordered=False) is None
    assert GIVES[f"{gives} at dst"](1, payloads) is NOT_LOOKED_AT


def test_what_is_not_looked_at_stays_so_where_it_is_sent() -> None:
    assert pickle.loads(cloudpickle.dumps({"on": NOT_LOOKED_AT}))["on"] is NOT_LOOKED_AT


@pytest.mark.parametrize(
    ("gives", "takes"),
    [
        ("concatenated", {"lists", "tensors of rows", "equal tensors"}),
        ("stacked", {"equal tensors", "dicts of scalars"}),
        ("sum", {"equal tensors", "dicts of scalars", "dicts of numbers", "numbers"}),
        ("mean at dst", {"equal tensors", "dicts of scalars", "dicts of numbers", "numbers"}),
        ("dst", set(SAMPLES)),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(gives: str, takes: set[str]) -> None:
    for each in SAMPLES:
        if each in takes:
            described(lambda payload: payload, gives=gives, takes=each)
            continue
        with pytest.raises(UsageError, match=f"gives='{gives}' has nothing that would be right for '") as refused:
            described(lambda payload: payload, gives=gives, takes=each)
        assert all(repr(fitting) in str(refused.value) for fitting in takes)
        assert f"or have dress make such of what takes={each!r} has" in str(refused.value)


def test_what_dress_makes_of_payloads_counts() -> None:
    dressed = described(lambda payload: payload, gives="concatenated", dress=lambda payload: [payload])
    assert dressed.receives(0, [[1], [None]]) == [1, None]


def test_of_payloads_of_ones_own_the_one_that_cannot_be_asked_is_named() -> None:
    takes = {"a word": Payload(lambda rank, size, turn: "word", "a text")}
    with pytest.raises(UsageError, match="for 'a word': str cannot be added up; leave it out of takes"):
        described(lambda payload: payload, gives="sum", takes=takes)


def test_a_mean_may_be_a_little_off_and_a_sum_may_not() -> None:
    third = 1 / 3
    for gives, off in (("mean", False), ("sum", True), ("mean at dst", False)):
        adapter = described(lambda payload: payload, gives=gives, takes="equal tensors")
        assert (adapter.differs([third], [third * (1 + 1e-7)]) is not None) is off
        assert (adapter.differs(torch.tensor([third]), torch.tensor([third * (1 + 1e-6)])) is not None) is off
        assert adapter.differs([third], [third * 1.001]) is not None
    exact = described(lambda payload: payload, gives="mean", takes="equal tensors", near=0.0)
    assert exact.differs(third, third * (1 + 1e-7)) is not None


@pytest.mark.parametrize("takes", ["dicts of scalars", "dicts of numbers", "equal tensors"])
def test_of_numbers_that_are_added_up_types_do_not_count_nor_where_one_says_so(takes: str) -> None:
    def differs(got: Any, wanted: Any, **more: Any) -> bool:
        return described(lambda payload: payload, gives="sum", takes=takes, **more).differs(got, wanted) is not None

    other_types = OrderedDict(a=torch.tensor(1.5, dtype=torch.float64)), {"a": 1.5}
    assert differs(*other_types) is (takes == "equal tensors")
    assert differs(*other_types, types=True)
    assert not differs(*other_types, types=False)
    assert differs({"a": 1.0}, {"a": 1.5}, types=False)
    assert not differs((1, [torch.tensor([2])]), [1, [[2.0]]], types=False)


def test_of_whole_numbers_no_mean_is_asked_for() -> None:
    from rankdrill.conformance.kit.samples.chosen import samples_of

    def names(gives: str) -> set[str]:
        adapter = described(lambda payload: payload, gives=gives, takes="equal tensors")
        return {sample.name for sample in samples_of(adapter)}

    assert names("sum") - names("mean") == {"a tensor of whole numbers"}
    adapter = described(lambda payload: payload, gives="mean", takes="equal tensors")
    assert {sample.name for sample in samples_of(adapter) if not sample.make(0, 2, 0).is_floating_point()} == set()
