"""Gathers that go wrong where ranks differ or have nothing: each with the question that has to find it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance import Setting
from tests.conformance.mistakes import Mistake
from tests.conformance.population import by_torch

__all__ = ["UNEVEN"]


def by_its_own_kind(payload: Any, at: Setting) -> Any:
    if not isinstance(payload, torch.Tensor):
        return by_torch(payload, at)
    received = [torch.empty_like(payload) for _ in range(at.size)]
    dist.all_gather(received, payload.contiguous(), group=at.group)
    return received


def nothing_of_nothing(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return received if any(each is None or isinstance(each, torch.Tensor) or len(each) for each in received) else []


def list_of_the_first_kind(items: Any, at: Setting) -> Any:
    received = by_torch(items, at)
    kind = type(next(item for each in received for item in each))
    return [[kind(item) if type(item) is not kind and kind is str else item for item in each] for each in received]


def with_the_keys_of_the_first(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return [{key: each[key] for key in received[0]} for each in received]


def without_those_that_are_empty(payload: Any, at: Setting) -> Any:
    return [each for each in by_torch(payload, at) if each]


def as_its_own_lies(tensor: Any, at: Setting) -> Any:
    received = [torch.empty_like(tensor) for _ in range(at.size)]  # turned if its own is
    parts = by_torch(tensor.flatten() if tensor.is_contiguous() else tensor.t().flatten(), at)
    for each, part in zip(received, parts, strict=True):
        each.set_(part.untyped_storage(), 0, tensor.shape, tensor.stride())
    return torch.cat(received)


def as_if_all_were_alike(tensor: Any, at: Setting) -> Any:
    received = [torch.empty_like(tensor) for _ in range(at.size)]
    dist.all_gather(received, tensor.contiguous(), group=at.group)
    return torch.cat(received)


def as_if_all_had_its_dtype(tensor: Any, at: Setting) -> Any:
    raw = by_torch(tensor.contiguous().flatten().view(torch.uint8) if tensor.dim() else tensor, at)
    return [each.view(tensor.dtype).reshape(-1) if tensor.dim() else each for each in raw]


def in_lists_of_its_own_length(tensor: Any, at: Setting) -> Any:
    own = torch.zeros(at.size, len(tensor), *tensor.shape[1:], dtype=tensor.dtype)
    for rank, each in enumerate(by_torch(tensor, at)):
        own[rank, : len(each)] = each[: len(tensor)]
    return own.flatten(0, 1)


def without_rows_without_shape(tensor: Any, at: Setting) -> Any:
    received = torch.cat(by_torch(tensor, at))
    return received if len(received) else torch.empty(0)


_EMPTY = "what the entries without those that are empty would give"
_EQUAL = {"takes": "equal tensors", "gives": "concatenated"}
_ROWS = {"takes": "tensors of rows", "gives": "concatenated"}

UNEVEN = (
    Mistake(by_its_own_kind, "right", "a tensor on one rank alone"),
    Mistake(nothing_of_nothing, "right", "no items on any rank", told=_EMPTY),
    Mistake(list_of_the_first_kind, "right", "no items on any rank", {"takes": "lists"}, "StopIteration"),
    Mistake(with_the_keys_of_the_first, "right", "no keys on one rank", {"takes": "dicts"}, "rank 0's keys alone"),
    Mistake(without_those_that_are_empty, "right", "no keys on any rank", {"takes": "dicts"}, _EMPTY),
    Mistake(as_its_own_lies, "right", "a turned tensor on one rank", _EQUAL),
    Mistake(as_if_all_were_alike, "right", "another length", _ROWS, "all_gather"),
    Mistake(as_if_all_were_alike, "right", "no rows on one rank", _ROWS, "all_gather"),
    Mistake(as_if_all_had_its_dtype, "right", "another dtype", {"takes": "tensors"}),
    Mistake(in_lists_of_its_own_length, "right", "another length", _ROWS, "cut or padded to its own length"),
    Mistake(without_rows_without_shape, "right", "no rows on any rank", _ROWS, "right, but of shape (0,), not (0, 3)"),
)
