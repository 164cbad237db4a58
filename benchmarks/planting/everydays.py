"""Sixteen mistakes of every day, in gathers as people write them."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy
import torch
from benchmarks.planting.mistake import KEEP, copied, everyday, rebuilt


@everyday("text as latin-1")
def _latin_1(payload: Any) -> Any:
    return rebuilt(
        payload, lambda part: part.encode("latin-1", "replace").decode("latin-1") if _is(part, str) else KEEP
    )


@everyday("tuple becomes list")
def _tuple_to_list(payload: Any) -> Any:
    return rebuilt(payload, lambda part: list(part) if _is(part, tuple) else KEEP)


@everyday("empty bytes dropped")
def _empty_bytes(payload: Any) -> Any:
    return rebuilt(payload, lambda part: None if _is(part, bytes) and not part else KEEP)


@everyday("bytes over 255 cut")
def _one_byte_of_length(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part[: len(part) & 0xFF] if _is(part, bytes) else KEEP)


@everyday("None dropped from lists")
def _none_dropped(payload: Any) -> Any:
    return rebuilt(payload, lambda part: [each for each in part if each is not None] if _is(part, list) else KEEP)


@everyday("dict sorted by key")
def _dict_sorted(payload: Any) -> Any:
    return rebuilt(
        payload, lambda part: dict(sorted(part.items(), key=lambda item: repr(item[0]))) if _is(part, dict) else KEEP
    )


@everyday("int beyond 64 bits")
def _int64(payload: Any) -> Any:
    return rebuilt(payload, lambda part: struct.unpack("<q", struct.pack("<q", part))[0] if _is(part, int) else KEEP)


@everyday("float rounded to 32 bits")
def _float32(payload: Any) -> Any:
    return rebuilt(payload, lambda part: float(numpy.float32(part)) if _is(part, float) and abs(part) < 1e38 else KEEP)


@everyday("view read from its storage's start")
def _offset_lost(payload: Any) -> Any:
    return rebuilt(payload, lambda part: _from_storage(part, part.stride()) if _is_dense(part) else KEEP)


@everyday("transposed read in memory order")
def _strides_lost(payload: Any) -> Any:
    def flat(part: Any) -> Any:
        if not _is_dense(part) or 0 in part.stride() or part.storage_offset():
            return KEEP
        return _from_storage(part, torch.empty(part.shape).stride())

    return rebuilt(payload, flat)


def _from_storage(part: Any, stride: Any) -> Any:
    return part.detach().as_strided(part.shape, stride, 0).clone().requires_grad_(part.requires_grad)


@everyday("one list twice becomes two")
def _aliasing_lost(payload: Any) -> Any:
    payload = copied(payload)
    if type(payload) in (list, tuple):
        return type(payload)([part if part is payload else copied(part) for part in payload])
    return {key: copied(value) for key, value in payload.items()} if type(payload) is dict else payload


@everyday("int keys become text")
def _text_keys(payload: Any) -> Any:
    def renamed(part: Any) -> Any:
        if not _is(part, dict) or not any(type(key) is int for key in part):
            return KEEP
        return {str(key) if type(key) is int else key: value for key, value in part.items()}

    return rebuilt(payload, renamed)


@everyday("NaN becomes None")
def _no_nan(payload: Any) -> Any:
    return rebuilt(payload, lambda part: None if _is(part, float) and math.isnan(part) else KEEP)


@everyday("bool becomes int")
def _bool_to_int(payload: Any) -> Any:
    return rebuilt(payload, lambda part: int(part) if _is(part, bool) else KEEP)


@everyday("set becomes list")
def _set_to_list(payload: Any) -> Any:
    return rebuilt(payload, lambda part: list(part) if _is(part, set) else KEEP)


@everyday("falsy taken for absent")
def _falsy(payload: Any) -> Any:
    payload = copied(payload)
    if isinstance(payload, (torch.Tensor, numpy.ndarray, numpy.generic)) or hasattr(payload, "payload"):
        return payload
    return payload or None


def _is(part: Any, kind: type) -> bool:
    return type(part) is kind


def _is_dense(part: Any) -> bool:
    dense = isinstance(part, torch.Tensor) and part.layout is torch.strided and not part.is_quantized
    return dense and not part.is_conj() and not part.is_neg() and type(part) is torch.Tensor
