"""Lists have one number exactly where they are equal, and the same one in C as in Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdrill.explain.flight.digests import of_identities, of_shapes, plain_of_identities, plain_of_shapes

SIZES = st.lists(st.lists(st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 2), max_size=3), max_size=3))
OBJECTS = [object() for _ in range(4)]


@given(SIZES)
def test_shapes_have_one_number_where_they_are_equal(column: list[list[list[int]]]) -> None:
    numbers = of_shapes(column).tolist()
    assert numbers == plain_of_shapes(column).tolist() == of_shapes(tuple(column)).tolist()
    for one, number in zip(column, numbers, strict=True):
        assert [each == one for each in column] == [each == number for each in numbers]


@given(st.lists(st.lists(st.sampled_from(OBJECTS), max_size=4)))
def test_lists_of_objects_have_one_number_where_they_hold_the_same(column: list[list[object]]) -> None:
    numbers = of_identities(column).tolist()
    assert numbers == plain_of_identities(column).tolist()
    for one, number in zip(column, numbers, strict=True):
        assert [each == one for each in column] == [each == number for each in numbers]


@pytest.mark.parametrize("odd", [None, "ab", 1, {}, [1], [[1.0]], [["a"]], [[None]], [(1,)], [[[1]]]])
@pytest.mark.parametrize("make", [of_shapes, plain_of_shapes])
def test_what_is_no_shape_is_refused(odd: Any, make: Any) -> None:
    with pytest.raises(TypeError):
        make([[[1, 2]], odd])


@pytest.mark.parametrize("make", [of_shapes, plain_of_shapes])
def test_a_size_beyond_all_bounds_is_refused(make: Any) -> None:
    with pytest.raises(OverflowError):
        make([[[1 << 63]]])


@pytest.mark.parametrize("make", [of_identities, plain_of_identities])
def test_what_is_no_list_of_objects_is_refused(make: Any) -> None:
    with pytest.raises(TypeError):
        make([[], ()])
