"""One object in two places, and several objects over one memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rankdrill_strategies.everyday.table import Table

__all__ = ["ARRAYS_TWICE", "TENSORS_TWICE", "TWICE"]


def _twice(make: Callable[[], Any], arrange: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: arrange(make())


def _in_list(part: Any) -> Any:
    return [part, part]


def _in_dict(part: Any) -> Any:
    return {"a": part, "b": part}


def _in_tuple(part: Any) -> Any:
    return (part, [part])


def _rows(part: Any) -> Any:
    return [part] * 3


def _one_value(part: Any) -> Any:
    return dict.fromkeys(("a", "b"), part)


_PARTS: tuple[Callable[[], Any], ...] = (list, dict, set, lambda: [1], lambda: {"a": 1}, lambda: bytearray(b"a"))
TWICE: Table = tuple(
    _twice(make, arrange) for make in _PARTS for arrange in (_in_list, _in_dict, _in_tuple, _rows, _one_value)
)


def _tensor() -> Any:
    import torch

    return torch.arange(4.0)


def _array() -> Any:
    import numpy

    return numpy.arange(4)


def _halves(whole: Any) -> Any:
    return [whole[:2], whole[2:]]


def _part_and_whole(whole: Any) -> Any:
    return (whole, whole[1:])


def _reshaped(whole: Any) -> Any:
    return {"a": whole, "b": whole.reshape(2, 2).T}


TENSORS_TWICE: Table = tuple(
    _twice(_tensor, arrange) for arrange in (_in_list, _in_dict, _halves, _part_and_whole, _reshaped)
)
ARRAYS_TWICE: Table = tuple(
    _twice(_array, arrange) for arrange in (_in_list, _in_dict, _halves, _part_and_whole, _reshaped)
)
