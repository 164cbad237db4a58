"""Arrays of every kind of dtype and every layout are drawn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill_strategies import arrays

some = settings(max_examples=4000, database=None, deadline=None, derandomize=True, phases=[Phase.generate])


class _Whole(Exception):  # noqa: N818 - no error: nothing is left to be seen
    pass


@pytest.fixture(scope="module")
def drawn() -> list[Any]:
    """Many, up to the one with which everything has been seen."""
    found: list[Any] = []
    missing = [*(_of_dtype(numpy.dtype(dtype)) for dtype in DTYPES), *map(_laid_out, LAYOUTS.values())]
    missing += [_exactly(kind) for kind in SCALARS]
    missing += [_of_text] if STRINGS else []

    def keep(array: Any) -> None:
        found.append(array)
        missing[:] = [is_one for is_one in missing if not is_one(array)]
        if not missing:
            raise _Whole

    with suppress(_Whole):
        some(given(arrays())(keep))()
    return found


STRINGS = hasattr(getattr(numpy, "dtypes", None), "StringDType")
SCALARS = {numpy.float64, numpy.bool_, numpy.datetime64, numpy.str_, numpy.void}
DTYPES: list[Any] = [
    *("f8", "i8", "?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "f2", "f4", "g", "c8", "c16", "G"),
    *(">i2", ">f4", ">c16", "O", "S3", "U2", ">U2", "V3", "M8[ns]", "M8[D]", ">M8[s]", "m8[us]", "m8[D]"),
    [("a", "<i4"), ("b", ">f8")],
    {"names": ["a", "b"], "formats": ["u1", "i8"], "offsets": [0, 8], "itemsize": 24},
    [("point", [("x", "f4"), ("what", "O")]), ("pair", "i2", (2,))],
]


def _of_dtype(dtype: numpy.dtype[Any]) -> Callable[[Any], bool]:
    return lambda array: type(array) is numpy.ndarray and array.dtype == dtype and bool(array.size)


def _of_text(array: Any) -> bool:
    return isinstance(array, numpy.ndarray) and array.dtype.kind == "T" and bool(array.size)


def _laid_out(layout: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda array: type(array) is numpy.ndarray and layout(array)


def _exactly(kind: type) -> Callable[[Any], bool]:
    return lambda array: type(array) is kind


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_drawn(dtype: Any, drawn: list[Any]) -> None:
    assert any(map(_of_dtype(numpy.dtype(dtype)), drawn))


@pytest.mark.skipif(not STRINGS, reason="numpy 2 brought it")
def test_strings_of_variable_width_are_drawn(drawn: list[Any]) -> None:
    assert any(map(_of_text, drawn))


def _nan(array: Any) -> bool:
    return array.dtype.kind == "f" and bool(numpy.isnan(array).any())


LAYOUTS: dict[str, Callable[[Any], bool]] = {
    "zero-dimensional": lambda array: array.ndim == 0,
    "empty": lambda array: array.size == 0,
    "of three dimensions, none of them 1": lambda array: array.ndim == 3 and min(array.shape) > 1,
    "in Fortran order": lambda array: array.flags.f_contiguous and not array.flags.c_contiguous,
    "backwards": lambda array: any(stride < 0 for stride in array.strides),
    "broadcast, read-only": lambda array: 0 in array.strides and array.size > 1 and not array.flags.writeable,
    "strided": lambda array: array.ndim == 1 and array.size > 1 and array.strides[0] > array.itemsize,
    "a view": lambda array: array.base is not None and array.base.size > array.size > 0,
    "with NaN": _nan,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_drawn(layout: str, drawn: list[Any]) -> None:
    assert any(map(_laid_out(LAYOUTS[layout]), drawn))


def test_scalars_are_drawn(drawn: list[Any]) -> None:
    assert {type(array) for array in drawn} >= SCALARS


def test_an_array_shrinks_to_zero() -> None:
    quickly = settings(max_examples=1000, database=None, deadline=None, derandomize=True)
    assert find(arrays(), lambda array: True, settings=quickly).shape == ()
    smallest = find(arrays(), lambda array: getattr(array, "size", 0) > 1 and array.dtype.kind == "f", settings=quickly)
    assert smallest.size == 2
    assert not smallest.any()


@settings(max_examples=100, deadline=None)
@given(arrays(dtypes=["O"], max_dims=1, max_side=2, objects=st.just("this")))
def test_it_keeps_to_what_was_asked(array: Any) -> None:
    if isinstance(array, numpy.ndarray):
        assert array.dtype == object
        assert all(side <= 2 for side in array.shape)
        assert set(array.flat) <= {"this"}
    else:
        assert array == "this"  # an element by itself


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dtypes": ()}, r"dtypes=\(\) leaves nothing to draw; name a dtype, or give None for all"),
        ({"max_dims": "1"}, "max_dims='1' is no count; give an int of at least 0 and at most 8"),
        ({"max_side": 0}, "max_side=0 is out of range; give at least 1"),
        ({"objects": 1}, r"objects=1 is no Hypothesis strategy; for a fixed value give st.just\(...\)"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        arrays(**arguments)
