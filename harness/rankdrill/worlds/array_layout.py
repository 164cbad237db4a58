"""Arrays on their way to ranks keep how they lie in memory: numpy's own pickles know C and Fortran order alone.

A body that is given a reversed, a broadcast or a read-only array is to meet one there, too.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["dispatch_table", "laid_out"]

_MOST_BYTES = 1 << 22  # from the first to the last element: a thin view of more is left to numpy, which copies it


def dispatch_table() -> dict[type, Callable[[Any], tuple[Any, ...]]]:
    """How a pickler is to reduce arrays; nothing where nobody has imported numpy, who has no array either."""
    numpy: Any = sys.modules.get("numpy")
    return {numpy.ndarray: _reduce} if numpy is not None else {}


def _reduce(array: Any) -> tuple[Any, ...]:
    reduced = _reduce_layout(array)
    return reduced if reduced is not None else tuple(array.__reduce_ex__(pickle.HIGHEST_PROTOCOL))


def _reduce_layout(array: Any) -> tuple[Any, ...] | None:
    """How to pickle an array that numpy would change; None where it would not."""
    import numpy

    contiguous = array.flags.c_contiguous or array.flags.f_contiguous
    dtype = array.dtype.str if array.dtype.kind in "mM" else array.dtype  # whose pickles are native
    if array.flags.writeable and contiguous and _usual_strides(array) and array.dtype.isnative:
        return None
    whole = array.dtype.hasobject and array.dtype != object
    low, high = _bounds(array)
    if whole or not array.size or high - low > _MOST_BYTES:
        return None
    owner = _objects(numpy, array, low, high) if array.dtype == object else ctypes.string_at(low, high - low)
    offset = array.__array_interface__["data"][0] - low
    return laid_out, (owner, offset, dtype, array.shape, array.strides, bool(array.flags.writeable))


def laid_out(
    owner: Any, offset: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], writeable: bool
) -> Any:
    """The array whose elements lie in `owner`, bytes or an array of objects, from byte `offset` on."""
    import numpy

    if isinstance(owner, bytes):
        array = numpy.ndarray(shape, dtype, bytearray(owner), offset, strides)
    else:
        array = numpy.lib.stride_tricks.as_strided(owner[offset // owner.itemsize :], shape, strides)
    if not writeable:
        array.flags.writeable = False
    return array


def _usual_strides(array: Any) -> bool:
    # Where an axis has one element or none its stride means nothing, and still it may be asked for.
    expected = [array.itemsize]
    order = range(array.ndim - 1, 0, -1) if array.flags.c_contiguous else range(array.ndim - 1)
    for axis in order:
        expected.append(expected[-1] * array.shape[axis])
    usual = tuple(reversed(expected)) if array.flags.c_contiguous else tuple(expected)
    return array.ndim == 0 or not array.size or array.strides == usual


def _bounds(array: Any) -> tuple[int, int]:
    """The addresses of the first byte of its elements, and of the one after their last."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high + array.itemsize


def _objects(numpy: Any, array: Any, low: int, high: int) -> Any:
    """The elements from `low` on, each in its place; what lies between them is left out."""
    owner = numpy.empty((high - low) // array.itemsize, object)
    start = array.__array_interface__["data"][0] - low
    for index in numpy.ndindex(array.shape):
        at = start + sum(place * stride for place, stride in zip(index, array.strides, strict=True))
        owner[at // array.itemsize] = array[index]
    return owner
