"""`same` and structures: what is shared, what contains itself, and whatever is drawn."""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import assume, given, settings

from rankdrill.errors import UsageError
from rankdrill_strategies import explain_difference, picklables, same, scribble, specimens
from rankdrill_strategies.specimens import Node, Record

nan = math.nan


# ---------------------------------------------------------------------------------------------- sharing


def test_sharing_counts() -> None:
    x: list[int] = []
    assert same([x, x], [(y := []), y])  # type: ignore[var-annotated]  # any list will do
    assert explain_difference([x, x], [[], []]) == ("$[1]: the object at $[0] on the left, another object on the right")
    assert explain_difference([[], []], [x, x]) == ("$[1]: the object at $[0] on the right, another object on the left")


def test_sharing_does_not_count_when_it_is_not_asked_for() -> None:
    x: list[int] = []
    assert same([x, x], [[], []], sharing=False)
    assert not same([x, x], [[], [1]], sharing=False)


@pytest.mark.parametrize(
    "make",
    [
        *(list, dict, set, deque, bytearray, Record, specimens.Slotted, specimens.Prickly, object),
        *(lambda: torch.zeros(1), lambda: numpy.zeros(1)),
    ],
)
def test_sharing_counts_for_all_that_can_change(make: Callable[[], Any]) -> None:
    one = make()
    assert same((one, {"x": one}), pickle.loads(pickle.dumps((one, {"x": one}))))
    assert not same((one, {"x": one}), (one, {"x": make()}))
    assert not same((one, {"x": make()}), (one, {"x": one}))


def test_sharing_with_a_part_of_itself_counts() -> None:
    inner: list[Any] = []
    whole = [inner]
    assert not same([whole, inner], [whole, []])
    assert same([whole, inner], [[(other := [])], other])  # type: ignore[var-annotated]  # any list will do


# ---------------------------------------------------------------------------------------------- recursion


def _knot(*around: Any) -> list[Any]:
    knot = [*around]
    knot.append(knot)
    return knot


def test_a_knot_is_the_same_as_another() -> None:
    assert same(_knot(), _knot())
    assert same(_knot(1, nan), _knot(1, nan))
    assert explain_difference(_knot(1), _knot(2)) == "$[0]: 1 != 2"


def test_a_knot_unrolled_once_is_not_the_same_unless_sharing_is_ignored() -> None:
    unrolled: list[Any] = [[]]
    unrolled[0].append(unrolled)
    assert not same(_knot(), unrolled)
    assert not same(unrolled, _knot())
    assert same(_knot(), unrolled, sharing=False)


def test_two_knots_are_not_one_knot_tied_crosswise() -> None:
    left, right = Node("a"), Node("a")
    left.links, right.links = [left], [right]
    crossed, other = Node("a"), Node("a")
    crossed.links, other.links = [other], [crossed]
    assert not same([left, right], [crossed, other])
    assert same([left, right], [crossed, other], sharing=False)


def test_members_of_sets_are_matched_with_who_they_are_elsewhere() -> None:
    def couple(*, first_is_listed: bool) -> list[Any]:
        one, other = Node("twin"), Node("twin")
        one.links = [1]
        other.links = [1]
        return [{one, other}, one if first_is_listed else other, [one]]

    assert same(couple(first_is_listed=True), couple(first_is_listed=True))
    assert not same(couple(first_is_listed=True), couple(first_is_listed=False))


def test_a_deep_structure_needs_no_recursion() -> None:
    def deep(bottom: int) -> list[Any]:
        here: list[Any] = [bottom]
        for _ in range(5_000):  # five times the limit of recursion
            here = [here]
        return here

    assert same(deep(1), deep(1))
    assert not same(deep(1), deep(2))


# ---------------------------------------------------------------------------------------------- properties


@settings(max_examples=200, deadline=None)
@given(picklables(newer_dtypes=True))
def test_everything_is_the_same_as_itself(payload: Any) -> None:
    assert explain_difference(payload, payload) is None


@settings(max_examples=200, deadline=None)
@given(picklables(), picklables())
def test_it_is_symmetric(one: Any, other: Any) -> None:
    assert same(one, other) == same(other, one)
    assert same(one, other, sharing=False) == same(other, one, sharing=False)
    assert same(one, other, sharing=False) or not same(one, other)


@settings(max_examples=300, deadline=None)
@given(picklables())
def test_a_changed_copy_is_not_the_same(payload: Any) -> None:
    changed = pickle.loads(pickle.dumps(payload, 5))
    assume(scribble(changed))
    assert not same(payload, changed)
    assert not same(changed, payload)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="sharing=1 is no switch; give True or False"):
        same(1, 1, sharing=1)  # type: ignore[arg-type]  # that is the point
