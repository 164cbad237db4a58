"""Whether two values are the same to whoever goes on with them: numbers but for the error of their last digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch

__all__ = ["alike"]

RELATIVE, ABSOLUTE = 1e-4, 1e-6  # sums of floats differ in this way with their order, and nobody asks for more
_PLAIN = (str, bytes, bytearray, bool, int, type(None))


def alike(one: Any, other: Any) -> bool:
    """Whether they are; also where nobody can say, as of objects that know no equality."""
    if isinstance(one, float) and isinstance(other, float):
        same = math.isnan(one) and math.isnan(other)
        return same or math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and _same_elements(one, other)
    if isinstance(one, np.ndarray | np.generic) and isinstance(other, np.ndarray | np.generic):
        return np.shape(one) == np.shape(other) and bool(np.all(one == other) or _close(one, other))
    if isinstance(one, _PLAIN) or isinstance(other, _PLAIN):
        return bool(one == other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        # The order of a dictionary is seldom meant.
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, Set) and isinstance(other, Set):
        return one == other
    if isinstance(one, Sequence) and isinstance(other, Sequence):
        return len(one) == len(other) and all(map(alike, one, other))
    if type(one) is not type(other):
        return False
    return alike(vars(one), vars(other)) if hasattr(one, "__dict__") else True


def _same_elements(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_floating_point() or one.is_complex():
        return bool(torch.allclose(one, other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))
    return bool(torch.equal(one, other))


def _close(one: Any, other: Any) -> bool:
    try:
        return bool(np.allclose(one, other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))
    except TypeError:
        return False
