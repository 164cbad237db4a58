"""Large reservations of memory become steps: torch's functions that make tensors, and `mmap`.

Python's own objects are made in C without any call that could be replaced: a `bytearray`, a `bytes`, a numpy array
is no step. That one of them cannot be made is had with a real limit: the strike `limit`.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from rankdrill.boundary.crossing import Boundary
from rankdrill.boundary.patch import Patch
from rankdrill.boundary.sizes import nbytes_of
from rankdrill.boundary.stand_in import StandIn
from rankdrill.boundary.torch_seam import note_device_constructors
from rankdrill.step import Kind, Step

__all__ = ["MIN_BYTES", "memory_patches"]

__tracebackhide__ = True  # of all frames in here: pytest then ends its traceback in the code under test

MIN_BYTES = 1024  # smaller ones do not fail, and would drown the ledger

Measure = Callable[..., int]


def memory_patches(boundary: Boundary) -> Iterator[Patch]:
    """What makes reservations of `MIN_BYTES` and more steps of `boundary`."""
    note_device_constructors()
    for name, measure in _FUNCTIONS.items():
        yield Patch(torch, name, _reserving(name, measure, boundary))
    yield Patch(torch.Tensor, "resize_", _reserving("resize_", _resized, boundary))
    yield Patch(mmap, "mmap", functools.partial(_mapping, boundary=boundary))


def _reserving(op: str, measure: Measure, boundary: Boundary) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def reserve(*args: Any, **kwargs: Any) -> Any:
            if not boundary.open:
                return original(*args, **kwargs)
            try:
                nbytes = int(measure(*args, **kwargs))
            except Exception:  # the real call says what is wrong with the arguments
                nbytes = 0
            if nbytes < MIN_BYTES:
                return original(*args, **kwargs)
            return boundary.cross(Step(Kind.MEMORY, op, nbytes=nbytes), {}, lambda call: original(*args, **kwargs))

        return StandIn(original, reserve)

    return make


def _mapping(original: Any, boundary: Boundary) -> Any:
    class Kin(type(original)):  # type: ignore[misc]  # a boundary within another finds the other's
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)  # those made before, or by another name, are mmaps too

    class Mapped(original, metaclass=Kin):  # type: ignore[misc]
        def __new__(cls, fileno: int, length: int, *args: Any, **kwargs: Any) -> Any:
            if not boundary.open or length < MIN_BYTES:
                return original.__new__(cls, fileno, length, *args, **kwargs)
            step = Step(Kind.MEMORY, "mmap", nbytes=length)
            return boundary.cross(step, {}, lambda call: original.__new__(cls, fileno, length, *args, **kwargs))

    Mapped.__module__, Mapped.__name__, Mapped.__qualname__ = original.__module__, "mmap", "mmap"
    Mapped.__doc__ = original.__doc__
    return Mapped


def _itemsize(dtype: torch.dtype | None) -> int:
    return (dtype or torch.get_default_dtype()).itemsize


def _sized(*size: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> int:
    shape = kwargs.get("size", size)
    return math.prod(_shape(shape)) * _itemsize(dtype)


def _filled(size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> int:
    return math.prod(_shape(size)) * _itemsize(dtype)


def _like(given: torch.Tensor, *, dtype: torch.dtype | None = None, **kwargs: Any) -> int:
    return given.numel() * (dtype or given.dtype).itemsize


def _joined(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> int:
    return sum(map(nbytes_of, tensors))


def _resized(given: torch.Tensor, *size: Any, **kwargs: Any) -> int:
    return math.prod(_shape(kwargs.get("size", size))) * given.dtype.itemsize


def _shape(size: Any) -> Sequence[int]:
    return size[0] if len(size) == 1 and not isinstance(size[0], int) else size  # type: ignore[no-any-return]


_FUNCTIONS: dict[str, Measure] = {
    "cat": _joined,
    "clone": _like,
    "empty": _sized,
    "empty_like": _like,
    "full": _filled,
    "ones": _sized,
    "ones_like": _like,
    "stack": _joined,
    "zeros": _sized,
    "zeros_like": _like,
}
