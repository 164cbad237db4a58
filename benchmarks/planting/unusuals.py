"""Mistakes at the ends of buffers, with rare kinds, at depth, and in the order of ranks."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy
import torch
from benchmarks.planting.mistake import KEEP, copied, rebuilt, unusual

_BUFFER = 4096  # bytes
_DEEPEST = 300


# ---------------------------------------------------------------------------------------------- ends of buffers


@unusual("zeros at the end stripped as padding")
def _padding(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part.rstrip(b"\0") if type(part) is bytes else KEEP)


@unusual("a full buffer loses its last byte")
def _full_buffer(payload: Any) -> Any:
    pickled = pickle.dumps(payload, 5)
    return pickle.loads(pickled[: _BUFFER - 1] if len(pickled) == _BUFFER else pickled)


@unusual("size in two bytes", ranks=2)
def _short_header(payloads: list[Any]) -> list[Any]:
    return [pickle.loads(pickled[: len(pickled) & 0xFFFF]) for pickled in _pickled(payloads)]


@unusual("buffer of the first rank's size", ranks=2)
def _first_size(payloads: list[Any]) -> list[Any]:
    pickled = _pickled(payloads)
    return [pickle.loads(each[: max(len(pickled[0]), 1 << 12)]) for each in pickled]


@unusual("frames of 64 KiB, the last full one forgotten", ranks=2)
def _full_frame(payloads: list[Any]) -> list[Any]:
    return [pickle.loads(each if len(each) % (1 << 16) else each[: -(1 << 16)]) for each in _pickled(payloads)]


@unusual("text ends at its first zero")
def _c_string(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part.split("\0")[0] if type(part) is str else KEEP)


@unusual("length in characters, not bytes")
def _characters(payload: Any) -> Any:
    def cut(part: Any) -> Any:
        if type(part) is not str:
            return KEEP
        return part.encode("utf-8", "surrogatepass")[: len(part)].decode("utf-8", "replace")

    return rebuilt(payload, cut)


# ---------------------------------------------------------------------------------------------- rare kinds


@unusual("surrogates dropped")
def _surrogates(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part.encode("utf-8", "ignore").decode() if type(part) is str else KEEP)


@unusual("exception made anew from its arguments")
def _bare_exception(payload: Any) -> Any:
    return rebuilt(payload, lambda part: type(part)(*part.args) if isinstance(part, BaseException) else KEEP)


@unusual("subclasses of dict become dicts")
def _base_class(payload: Any) -> Any:
    return rebuilt(payload, lambda part: dict(part) if isinstance(part, dict) else KEEP)


@unusual("nested deeper than 300 refused")
def _deep(payload: Any) -> Any:
    depth, here = 0, payload
    while type(here) in (list, tuple, dict) and here and depth <= _DEEPEST:
        here, depth = next(iter(here.values() if type(here) is dict else here)), depth + 1
        if here is payload:  # round and round: of no depth
            return copied(payload)
    if depth > _DEEPEST:
        raise RecursionError(f"more than {_DEEPEST} levels")
    return copied(payload)


@unusual("random state cut to its seed")
def _reseeded(payload: Any) -> Any:
    def seeded(part: Any) -> Any:
        return torch.Generator().manual_seed(part.initial_seed()) if isinstance(part, torch.Generator) else KEEP

    return rebuilt(payload, seeded)


@unusual("mask of an array lost")
def _unmasked(payload: Any) -> Any:
    return rebuilt(payload, lambda part: numpy.asarray(part) if isinstance(part, numpy.ma.MaskedArray) else KEEP)


@unusual("arrays of no dimensions become numbers")
def _no_dimensions(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part.item() if type(part) is numpy.ndarray and part.ndim == 0 else KEEP)


@unusual("requires_grad lost")
def _detached(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part.detach() if isinstance(part, torch.Tensor) else KEEP)


@unusual("tensors through numpy")
def _through_numpy(payload: Any) -> Any:
    def carried(part: Any) -> Any:
        if type(part) is not torch.Tensor or part.layout is not torch.strided or part.requires_grad:
            return KEEP
        return torch.from_numpy(part.resolve_conj().resolve_neg().numpy().copy())

    return rebuilt(payload, carried)


@unusual("compared with None by ==")
def _compared(payload: Any) -> Any:
    return None if payload == None else copied(payload)  # noqa: E711 - the mistake


@unusual("time zone lost")
def _naive(payload: Any) -> Any:
    return rebuilt(payload, lambda part: part.replace(tzinfo=None) if hasattr(part, "tzinfo") else KEEP)


@unusual("equal parts sent once")
def _cached(payload: Any) -> Any:
    sent: dict[Any, Any] = {}
    atoms = (bool, int, float)
    return rebuilt(payload, lambda part: sent.setdefault(part, part) if type(part) in atoms else KEEP)


@unusual("json where json will do")
def _json(payload: Any) -> Any:
    try:
        return json.loads(json.dumps(payload))
    except (TypeError, ValueError, RecursionError):
        return copied(payload)


# ---------------------------------------------------------------------------------------------- ranks


@unusual("in order of size", ranks=2)
def _by_size(payloads: list[Any]) -> list[Any]:
    return [pickle.loads(each) for each in sorted(_pickled(payloads), key=len)]


@unusual("ranks without a payload left out", ranks=2)
def _left_out(payloads: list[Any]) -> list[Any]:
    return [copied(payload) for payload in payloads if payload is not None]


@unusual("equal payloads received once", ranks=2)
def _one_for_equals(payloads: list[Any]) -> list[Any]:
    unique = dict.fromkeys(_pickled(payloads))
    return [pickle.loads(each) for each in unique]


def _pickled(payloads: list[Any]) -> list[bytes]:
    return [pickle.dumps(payload, 5) for payload in payloads]
