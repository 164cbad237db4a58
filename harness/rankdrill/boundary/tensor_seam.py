"""Where a plain tensor of torch's has its dtype, sizes and strides in memory: private to torch, found by looking.

They are looked at in each watched call. Asking for them as Python does makes a new `torch.Size` each time, by way of a
good deal of code that nothing else has just run, and asking whether it is contiguous takes as long again. So C reads
them where they lie, of what is no more than a tensor: of that very Python type, and of torch's very own class in C++,
which all samples have in common. Nested, sparse and functional tensors, and those that a transform wraps, are others,
and are asked.

Where that is, is worked out anew in each process, as of options (`options_seam.py`), and believed only where one place
alone shows what the samples have. `tests/boundary/test_tensor_seam.py` says whether it is found in this torch.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

__all__ = ["MOST_DIMENSIONS", "UNKNOWN", "TensorPlaces", "tensor_places"]

MOST_DIMENSIONS = 5  # that lie in the tensor itself
_LOOKED_AT = 320  # bytes: some more than a tensor has
_WORD = 8
_IN_PYTHON = range(object.__basicsize__, 64, _WORD)  # where the pointer to what is C++'s may lie
_DTYPES = {  # torch's numbers for them, which it also writes into files
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}
_SHAPES = ((3, 70_001, 7), (11,), (), (5, 2, 3, 1, 13), (1 << 33, 0), (0,), (2, 19, 23, 29))


class TensorPlaces(NamedTuple):
    """Where a tensor's pointer to its C++ part lies in its Python one, and in that dimensions and type, in bytes.

    `kind` is what each plain tensor's C++ part begins with; 0 where nothing was found.
    """

    pointer: int
    kind: int
    dimensions: int  # a word: how many; their sizes follow, a word each
    strides: int  # a word each
    dtype: int  # two bytes


UNKNOWN = TensorPlaces(0, 0, 0, 0, 0)


@functools.cache
def tensor_places() -> TensorPlaces:
    """Where plain tensors have what is asked of them; `UNKNOWN` where that cannot be said for sure."""
    shapes = [*_SHAPES, *[(2, 3)] * (len(_DTYPES) - len(_SHAPES))]
    # On meta: of no memory, whatever their sizes.
    samples = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in zip(shapes, _DTYPES, strict=True)]
    samples += [torch.zeros(4, 2), torch.ones(3, dtype=torch.int64)]
    samples += [samples[0].transpose(0, 2), samples[3].permute(3, 0, 4, 2, 1), torch.zeros(9, 8)[::2, ::3]]
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            return _found(memory.fileno(), samples)
    except (OSError, ValueError):  # no such file, or other tensors than these
        return UNKNOWN


def _found(memory: int, samples: Sequence[torch.Tensor]) -> TensorPlaces:
    for pointer in _IN_PYTHON:
        lying = [_lying_in(memory, each, pointer) for each in samples]
        kinds = {each[:_WORD] for each in lying}
        if not all(lying) or len(kinds) != 1:
            continue
        dimensions = _only(_WORD, lambda place, lie=lying: all(map(_has_sizes(place), lie, samples)))  # type: ignore[misc]
        dtype = _only(2, lambda place, lie=lying: all(map(_has_dtype(place), lie, samples)))  # type: ignore[misc]
        strides = _only(_WORD, lambda place, lie=lying: all(map(_has_strides(place), lie, samples)))  # type: ignore[misc]
        if dimensions is not None and strides is not None and dtype is not None:
            return TensorPlaces(pointer, int.from_bytes(kinds.pop(), "little"), dimensions, strides, dtype)
    return UNKNOWN


def _lying_in(memory: int, tensor: torch.Tensor, pointer: int) -> bytes:
    """What lies where it points to; nothing where that is no memory."""
    to = int.from_bytes(os.pread(memory, _WORD, id(tensor) + pointer), "little")
    try:
        lying = os.pread(memory, _LOOKED_AT, to) if 0 < to < 1 << 62 else b""
    except OSError:
        return b""
    return lying if len(lying) == _LOOKED_AT else b""


def _only(width: int, shows: Callable[[int], bool]) -> int | None:
    found = [place for place in range(0, _LOOKED_AT - (1 + MOST_DIMENSIONS) * _WORD, width) if shows(place)]
    return found[0] if len(found) == 1 else None


def _has_sizes(place: int) -> Callable[[bytes, torch.Tensor], bool]:
    return lambda lying, tensor: _has_words(lying, place, [tensor.dim(), *tensor.shape])


def _has_strides(place: int) -> Callable[[bytes, torch.Tensor], bool]:
    return lambda lying, tensor: _has_words(lying, place, tensor.stride())


def _has_words(lying: bytes, place: int, words: Sequence[int]) -> bool:
    expected = b"".join(each.to_bytes(_WORD, "little") for each in words)
    return lying[place : place + len(expected)] == expected


def _has_dtype(place: int) -> Callable[[bytes, torch.Tensor], bool]:
    return lambda lying, tensor: int.from_bytes(lying[place : place + 2], "little") == _DTYPES[tensor.dtype]
