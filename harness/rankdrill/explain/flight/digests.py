"""Lists of lists told apart by the thousand: a number for each, by numpy, equal where they are.

Unequal ones have one number about once in 2**64 pairs. What is in the lists is looked at no deeper than it may go.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["of_identities", "of_shapes"]

_Numbers = npt.NDArray[np.uint64]
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def of_shapes(column: Sequence[Any]) -> _Numbers:
    """A number for each of `column`, lists of lists of integers; raises `TypeError` for what is none."""
    tensors = list(chain.from_iterable(column))
    if set(map(type, tensors)) - {list} or set(map(type, column)) - {list}:
        raise TypeError("sizes are no lists")
    sizes = np.array(array("q", chain.from_iterable(tensors)), np.int64).view(np.uint64)
    return _over(_over(sizes, map(len, tensors)), map(len, column))


def of_identities(column: Sequence[Any]) -> _Numbers:
    """A number for each of `column`, lists, by the objects in them; raises `TypeError` for what is no list."""
    if set(map(type, column)) - {list}:
        raise TypeError("frames are no list")
    objects = np.fromiter(map(id, chain.from_iterable(column)), np.uint64)
    return _over(objects, map(len, column))


def _over(parts: _Numbers, lengths: Iterable[int]) -> _Numbers:
    """A number for each run of `parts`, of which `lengths` says how long each is."""
    counts = np.fromiter(lengths, np.int64)
    ends = np.cumsum(counts)
    places = np.arange(len(parts)) - np.repeat(ends - counts, counts)
    sums = np.zeros(len(parts) + 1, np.uint64)
    np.cumsum(_mixed(parts ^ _mixed(places.astype(np.uint64) + np.uint64(1))), out=sums[1:])
    return _mixed(sums[ends] - sums[ends - counts] + counts.astype(np.uint64))


def _mixed(numbers: _Numbers) -> _Numbers:
    spread = numbers * _ODD
    spread ^= spread >> _SHIFT
    spread *= _ODD
    return spread ^ (spread >> _SHIFT)
