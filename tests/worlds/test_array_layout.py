"""Arrays reach the ranks as they lie in memory here."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankdrill import World
from rankdrill.worlds.job import dump
from rankdrill_strategies import arrays

WHOLE = np.arange(24).reshape(4, 6)
READ_ONLY = WHOLE.copy()
READ_ONLY.flags.writeable = False
OBJECTS = np.array([[1, "a"], [None, {}]], object)
ARRAYS = {
    "reversed": WHOLE[::-1],
    "every second column": WHOLE[:, ::2],
    "transposed": WHOLE.T,
    "in Fortran's order": np.asfortranarray(WHOLE),
    "broadcast": np.broadcast_to(WHOLE, (3, 4, 6)),
    "broadcast from a number": np.broadcast_to(np.float32(3), (1, 1)),
    "read-only": READ_ONLY,
    "one row backwards": WHOLE[1:2, ::-1],
    "without elements": WHOLE[0:0],
    "of no dimensions": np.array(5),
    "thin view of much": np.arange(100_000)[::1000],
    "big-endian, backwards": WHOLE.astype(">i2")[::-2],
    "dates, backwards": WHOLE.astype("M8[s]")[::-1],
    "words, backwards": np.array(["abc", "de"])[::-1],
    "one field of a structure": np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])["b"],
    "objects, backwards": OBJECTS[::-1],
    "objects, transposed and backwards": OBJECTS.T[:, ::-1],
    "objects, broadcast": np.broadcast_to(OBJECTS, (2, 2, 2)),
}


def layout(array: Any) -> tuple[Any, ...]:
    return array.shape, array.strides, array.dtype, array.flags.writeable


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_what_is_sent_lies_as_it_lay(array: Any) -> None:
    there = pickle.loads(dump({"sent": array}))["sent"]
    assert layout(there) == layout(array)
    assert (there == array).all()


@given(arrays())
def test_whatever_is_drawn_arrives_as_drawn(array: Any) -> None:
    there = pickle.loads(dump(array))
    if type(array) is np.ndarray and array.size and (array.dtype == object or not array.dtype.hasobject):
        assert layout(there) == layout(array)


@given(st.lists(st.integers(-1, 1).filter(bool), min_size=1, max_size=3), st.integers(1, 3))
def test_any_mixture_of_directions_and_steps(directions: list[int], step: int) -> None:
    whole = np.arange(4 ** len(directions)).reshape([4] * len(directions))
    view = whole[tuple(slice(None, None, direction * step) for direction in directions)]
    there = pickle.loads(dump(view))
    assert layout(there) == layout(view)
    assert (there == view).all()


def test_a_thin_view_of_very_much_is_copied_by_numpy() -> None:
    view = np.arange(3_000_000)[::1_000_000]
    assert len(dump(view)) < 1000
    assert (pickle.loads(dump(view)) == view).all()


def test_on_ranks_what_is_read_only_cannot_be_written() -> None:
    def body(array: Any) -> tuple[tuple[int, ...], bool]:
        return array.strides, array.flags.writeable

    with World(2) as world:
        assert world.run(body, READ_ONLY[::-1]).unwrap() == [(READ_ONLY[::-1].strides, False)] * 2
