"""Exact equality of payloads: same types, same values, same shapes and dtypes; says where they first differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy
import torch

__all__ = ["difference", "plain", "shown"]

_SHOWN = 60
_EXACT_IN_FLOATS = 1 << 53


def difference(got: Any, wanted: Any, where: str = "result", *, ordered: bool = True, near: float = 0.0) -> str | None:
    """Where `got` first differs from `wanted`, in one line; None if it does not.

    Whether the keys of a dict come in the same order is looked at if `ordered`; of an `OrderedDict`, always. Floats may
    be off by `near`, as a share of what is wanted.
    """
    if type(got) is not type(wanted):
        return f"{where} is {shown(got)}, not {shown(wanted)}"
    match wanted:
        case torch.Tensor():
            same = got.dtype == wanted.dtype and got.shape == wanted.shape and _equal_tensors(got, wanted, near)
        case numpy.ndarray():
            same = got.dtype == wanted.dtype and got.shape == wanted.shape and _equal_arrays(got, wanted, near)
        case Mapping():
            return _difference_of_mappings(got, wanted, where, ordered=ordered, near=near)
        case list() | tuple():
            return _difference_of_sequences(got, wanted, where, ordered=ordered, near=near)
        case float() if near:
            same = math.isclose(got, wanted, rel_tol=near) or (got != got and wanted != wanted)
        case _:
            same = got == wanted or (got != got and wanted != wanted)  # a NaN is right where one was sent
    if same and isinstance(wanted, torch.Tensor) and got.requires_grad is not wanted.requires_grad:
        return f"{where}.requires_grad is {got.requires_grad}, not {wanted.requires_grad}"
    if same:
        return None
    return _first_element(got, wanted, where) or f"{where} is {shown(got)}, not {shown(wanted)}"


def _first_element(got: Any, wanted: Any, where: str) -> str | None:
    """Where arrays that are alike but for their elements first differ."""
    if not isinstance(wanted, torch.Tensor | numpy.ndarray) or (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return None
    pairs = zip(got.flatten().tolist(), wanted.flatten().tolist(), strict=True)
    found = ((at, left, right) for at, (left, right) in enumerate(pairs) if left != right and left == left)
    at, left, right = next(found, (0, None, None))
    return f"{where} has the element {shown(left)}, not {shown(right)}, at {at}" if left != right else None


def _equal_tensors(got: torch.Tensor, wanted: torch.Tensor, near: float) -> bool:
    if not wanted.is_floating_point() and not wanted.is_complex():
        return torch.equal(got, wanted)
    return torch.allclose(got, wanted, rtol=near, atol=0, equal_nan=True)


def _equal_arrays(got: Any, wanted: Any, near: float) -> bool:
    if wanted.dtype.kind not in "fc":
        return bool(numpy.array_equal(got, wanted))
    return bool(numpy.allclose(got, wanted, rtol=near, atol=0, equal_nan=True))


def _difference_of_mappings(got: Any, wanted: Any, where: str, *, ordered: bool, near: float) -> str | None:
    as_they_come: type = list if ordered or type(wanted) is not dict else set
    if as_they_come(got) != as_they_come(wanted):
        return f"{where} has the keys {list(got)!r}, not {list(wanted)!r}"
    found = (difference(got[key], wanted[key], f"{where}[{key!r}]", ordered=ordered, near=near) for key in wanted)
    return next(filter(None, found), None)


def _difference_of_sequences(got: Any, wanted: Any, where: str, *, ordered: bool, near: float) -> str | None:
    if len(got) != len(wanted):
        return f"{where} has {len(got)} items, not {len(wanted)}"
    pairs = zip(got, wanted, strict=True)
    found = (
        difference(left, right, f"{where}[{at}]", ordered=ordered, near=near) for at, (left, right) in enumerate(pairs)
    )
    return next(filter(None, found), None)


def plain(value: Any) -> Any:
    """`value` as it compares where types do not count: arrays as lists of lists, tuples as lists, subclasses of dict as
    dicts."""
    match value:
        case torch.Tensor() | numpy.ndarray():
            return plain(value.tolist())
        case numpy.generic():
            return plain(value.item())
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case bytearray() | memoryview():
            return bytes(value)
        case set() | frozenset():
            return frozenset(value)
        case bool() | int():
            return _whole(value)
        case _:
            return value


def _whole(value: int) -> float | int:
    """A whole number as the float that it is, if a float can hold it."""
    return float(value) if abs(value) <= _EXACT_IN_FLOATS else value


def shown(value: Any) -> str:
    """`value` in a line."""
    if isinstance(value, torch.Tensor | numpy.ndarray):
        return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
