"""Sound gathers of other things than objects, each with what `conformance` is to be told of it."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance import Setting
from tests.conformance.population import Gather, by_torch

__all__ = ["SOUND_OF_OTHERS", "means_by_name", "rows_in_one", "with_an_error_for_all_beyond"]


def _added_up(tensor: torch.Tensor, at: Setting) -> torch.Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=at.group)
    return total


def means_by_name(metrics: Any, at: Setting) -> Any:
    """Of scalars by name, with one call for all of them."""
    names = sorted(metrics)
    total = _added_up(torch.stack([metrics[name] for name in names]), at) / at.size
    return dict(zip(names, total, strict=True))


def sums_at_the_first(metrics: Any, at: Setting) -> Any:
    names = sorted(metrics)
    total = torch.tensor([metrics[name] for name in names], dtype=torch.float64)
    dist.reduce(total, dst=at.members[0], group=at.group)
    return dict(zip(names, total.tolist(), strict=True))


def sums_as_doubles(metrics: Any, at: Setting) -> Any:
    received = by_torch(metrics, at)
    return OrderedDict((name, sum(each[name].double() for each in received)) for name in metrics)


def one_after_another(numbers: Any, at: Setting) -> Any:
    return sum(float(each) / at.size for each in by_torch(numbers, at))


def stacked(tensor: Any, at: Setting) -> Any:
    return torch.stack(by_torch(tensor, at))


def rows_in_one(tensor: Any, at: Setting) -> Any:
    """Of another number on each rank: padded to the longest, and cut again."""
    tensor = tensor.contiguous()
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(at.size)]
    dist.all_gather(lengths, torch.tensor([len(tensor)]), group=at.group)
    longest = int(max(lengths))
    padded = torch.cat([tensor, tensor.new_zeros(longest - len(tensor), *tensor.shape[1:])])
    parts = [torch.empty_like(padded) for _ in range(at.size)]
    dist.all_gather(parts, padded, group=at.group)
    return torch.cat([part[: int(length)] for part, length in zip(parts, lengths, strict=True)])


def _by_name(rows: Any) -> Any:
    return {"b": rows, "a": rows[:1]}


def rows_by_name(named: Any, at: Setting) -> Any:
    return {name: rows_in_one(named[name], at) for name in sorted(named)}


def with_an_error_for_all_beyond(payload: Any, at: Setting) -> Any:
    """Of any object, in slots of `room` bytes."""
    raw = pickle.dumps(payload)
    slot = torch.zeros(8 + at.room, dtype=torch.uint8)
    slot[:8] = torch.tensor([len(raw)]).view(torch.uint8)
    if len(raw) <= at.room:
        slot[8 : 8 + len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    slots = [torch.empty_like(slot) for _ in range(at.size)]
    dist.all_gather(slots, slot, group=at.group)
    lengths = [int(each[:8].view(torch.int64)) for each in slots]
    if max(lengths) > at.room:
        raise ValueError(f"{max(lengths)} bytes, of {at.room}")
    return [pickle.loads(each[8 : 8 + length].numpy().tobytes()) for each, length in zip(slots, lengths, strict=True)]


SOUND_OF_OTHERS: dict[Gather, dict[str, Any]] = {
    means_by_name: {"takes": "dicts of scalars", "gives": "mean"},
    sums_at_the_first: {"takes": "dicts of numbers", "gives": "sum at dst"},
    sums_as_doubles: {"takes": "dicts of scalars", "gives": "sum"},
    one_after_another: {"takes": "numbers", "gives": "mean"},
    stacked: {"takes": "equal tensors", "gives": "stacked"},
    rows_in_one: {"takes": "tensors of rows", "gives": "concatenated"},
    rows_by_name: {"takes": "tensors of rows", "gives": "concatenated", "dress": _by_name},
}
