"""Wrong gathers of kinds that can be told by what came: each with what has to be said of it."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.conformance import Setting
from tests.conformance.mistakes import Mistake
from tests.conformance.population import by_torch

__all__ = ["NAMED"]


def its_own_alone(payload: Any, at: Setting) -> Any:
    return [payload]


def of_the_first_everywhere(payload: Any, at: Setting) -> Any:
    box = [payload]
    dist.broadcast_object_list(box, src=at.members[0], group=at.group)
    return box * at.size


def backwards(payload: Any, at: Setting) -> Any:
    return by_torch(payload, at)[::-1]


def its_own_first(payload: Any, at: Setting) -> Any:
    received = by_torch(payload, at)
    return [received.pop(at.rank), *received]


def of_the_call_before(payload: Any, at: Setting, kept: list[Any] = []) -> Any:  # noqa: B006 (the mistake)
    kept.append(by_torch(payload, at))
    return kept[-2] if len(kept) > 1 and at.turn else kept[-1]


def a_tuple(payload: Any, at: Setting) -> Any:
    return tuple(by_torch(payload, at))


def arrays(tensor: Any, at: Setting) -> Any:
    return [each.numpy() for each in by_torch(tensor, at)]


def summed(tensor: Any, at: Setting) -> Any:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=at.group)
    return total


def summed_in_32_bits(number: Any, at: Setting) -> Any:
    return summed(torch.tensor(float(number)), at).item()


def padded_and_left_so(tensor: Any, at: Setting) -> Any:
    longest = max(by_torch(len(tensor), at))
    own = torch.full((longest, *tensor.shape[1:]), -1, dtype=tensor.dtype)
    own[: len(tensor)] = tensor
    return torch.cat(by_torch(own, at))


def cut_to_the_shortest(tensor: Any, at: Setting) -> Any:
    shortest = min(by_torch(len(tensor), at))
    return [each[:shortest] for each in by_torch(tensor, at)]


def means_by_place(metrics: Any, at: Setting) -> Any:
    total = summed(torch.stack(list(metrics.values())), at) / at.size
    return dict(zip(metrics, total, strict=True))


def means_of_all_ranks(metrics: Any, at: Setting) -> Any:
    names = sorted(metrics)
    total = torch.stack([metrics[name] for name in names])
    dist.all_reduce(total)
    return dict(zip(names, total / dist.get_world_size(), strict=True))


def in_files_of_all_groups(payload: Any, at: Setting) -> Any:
    names = [f"{at.directory}/part-{at.turn // 2}-{rank}" for rank in range(at.size)]
    time.sleep(0.2 if at.members[0] else 0.0)  # which half writes last is to be known here
    Path(names[at.rank]).write_bytes(pickle.dumps(payload))
    dist.barrier()
    return [pickle.loads(Path(name).read_bytes()) for name in names]


def in_turns_to_the_shortest(items: Any, at: Setting) -> Any:
    turns = zip(*by_torch(items, at), strict=False)
    return [item for turn in turns for item in turn] if at.rank == 0 else None


def all_in_turns_at_the_first(rank: int, payloads: Any) -> Any:
    """What is right for it."""
    longest = max(map(len, payloads))
    turns = (item for place in range(longest) for items in payloads for item in items[place : place + 1])
    return list(turns) if rank == 0 else None


_IN_TURNS = {"takes": "lists", "gives": all_in_turns_at_the_first}
_METRICS = {"takes": "dicts of scalars", "gives": "mean"}

NAMED = (
    Mistake(its_own_alone, "right", "a small dict", told="this is what its own entry alone would give"),
    Mistake(of_the_first_everywhere, "right", "a small dict", told="rank 0's entry in every place"),
    Mistake(backwards, "right", "a small dict", told="the entries in reversed order"),
    Mistake(its_own_first, "right", "a small dict", told="its own entry first, then the others'"),
    Mistake(of_the_call_before, "right", "a small dict", told="the entries of call 1, the one before"),
    Mistake(a_tuple, "right", "a small dict", told="right, but tuple for list"),
    Mistake(arrays, "right", "six numbers", {"takes": "tensors"}, "an array of float32 for a tensor of float32"),
    Mistake(summed, "right", "six numbers", {"takes": "equal tensors", "gives": "mean"}, "this is the sum"),
    Mistake(summed_in_32_bits, "right", "more than 24 bits", {"takes": "numbers", "gives": "sum"}, "to seven digits"),
    Mistake(in_turns_to_the_shortest, "right", "no items on one", _IN_TURNS, "every entry cut to the shortest"),
    Mistake(means_by_place, "right", "names in another order", _METRICS, "all values by place, under its own names"),
    Mistake(means_of_all_ranks, "groups", "both halves", _METRICS, "it asks all ranks: all_reduce"),
    Mistake(in_files_of_all_groups, "groups", "both halves", told="what the entries of ranks 2, 3 would give"),
    Mistake(
        padded_and_left_so,
        "right",
        "another length",
        {"takes": "tensors of rows", "gives": "concatenated"},
        "every entry with something behind it, up to the longest",
    ),
    Mistake(
        cut_to_the_shortest, "right", "another length", {"takes": "tensors of rows"}, "every entry cut to the shortest"
    ),
)
