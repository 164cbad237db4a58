"""What gathers are asked to carry: what hand-written ones have been seen to change, drop or mix up.

Each sample is derivable on every rank, so that each can tell by itself what is right, and differs by rank and turn.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

__all__ = ["PLAIN", "SAMPLES", "Sample", "sized"]

Pair = namedtuple("Pair", "first second")


@dataclass(frozen=True)
class Sample:
    """`make(rank, size, turn)` builds what a rank contributes."""

    name: str
    make: Callable[[int, int, int], Any]


def _plain(rank: int, size: int, turn: int) -> Any:
    return {"rank": rank, "turn": turn, "words": ["a", "bc"] * (rank + 1)}


def _nothing_on_one(rank: int, size: int, turn: int) -> Any:
    return [] if rank == turn % size else [rank, turn]


def _none_on_one(rank: int, size: int, turn: int) -> Any:
    return None if rank == turn % size else {"rank": rank, "turn": turn}


def _items_by_rank(rank: int, size: int, turn: int) -> Any:
    return [[rank, turn, item] for item in range((rank + turn) % size * 3)]


def _falsy(rank: int, size: int, turn: int) -> Any:
    return (0, "", False, 0.0, (), {}, b"", None)[(rank + turn) % 8]


def _own_types(rank: int, size: int, turn: int) -> Any:
    return (1 + turn, 1.0 + turn, True, "1", b"1", [1], (1,), {1: turn})[(rank + turn) % 8]


def _own_keys(rank: int, size: int, turn: int) -> Any:
    return {f"of rank {rank}": turn, **({"more": {"deep": rank}} if rank % 2 else {})}


def _own_nesting(rank: int, size: int, turn: int) -> Any:
    nested: Any = turn
    for _ in range(rank + 1):
        nested = {"in": [nested]}
    return nested


def _text(rank: int, size: int, turn: int) -> Any:
    return ["naïve café", "Ελλάδα", "日本語", "🙂 x", "e\u0301"][(rank + turn) % 5] * (turn + 1)


def _int_keys(rank: int, size: int, turn: int) -> Any:
    return {rank: "rank", -1: "below", 2**40: turn}


def _tuples(rank: int, size: int, turn: int) -> Any:
    return ((rank, [turn, (rank,)]), Pair(rank, (turn,)), ())


def _key_order(rank: int, size: int, turn: int) -> Any:
    return list({"z": 0, "a": turn, "m": rank}), OrderedDict([("y", rank), ("b", turn)])


def _numbers(rank: int, size: int, turn: int) -> Any:
    return [0.1 + rank, 1e300, -0.0, float("inf"), 2**63 - 1, 2**63, -(2**70), 3 + turn * 1j, True]


def _not_a_number(rank: int, size: int, turn: int) -> Any:
    return [numpy.array([float("nan"), rank, turn]), float("nan")]


def _bytes(rank: int, size: int, turn: int) -> Any:
    return [b"\x00" * (rank + 1), b"ends in zeros\x00\x00", bytes(range(256)), bytearray([turn])]


def _sets(rank: int, size: int, turn: int) -> Any:
    return [{rank, turn, 100}, frozenset({"a", rank})]


def _dtypes(rank: int, size: int, turn: int) -> Any:
    kinds = (torch.float32, torch.int32, torch.float64, torch.int64, torch.bfloat16, torch.bool)
    return torch.tensor([turn, 1, 0, 2]).to(kinds[rank % len(kinds)])


def _views(rank: int, size: int, turn: int) -> Any:
    base = torch.arange(60).reshape(6, 10) + 100 * rank + turn
    return [base[1:3], base.t(), base[::2, 1::3], torch.tensor(rank), torch.empty(0, 3)]


def _arrays(rank: int, size: int, turn: int) -> Any:
    grid = numpy.arange(12, dtype=numpy.int16).reshape(3, 4) + rank + turn
    return [grid[::-1], numpy.asfortranarray(grid), numpy.array(["a", None, rank], dtype=object), numpy.float32(rank)]


def _shapes(rank: int, size: int, turn: int) -> Any:
    return torch.full((rank + 1, 2 + turn % 3), float(rank))


def _one_big(rank: int, size: int, turn: int) -> Any:
    return bytes([turn % 256]) * (1 << 20 if rank == size - 1 else rank)


PLAIN = Sample("a small dict", _plain)


def sized(count: int) -> Sample:
    """Some `count` bytes on the last rank, fewer on the others."""

    def make(rank: int, size: int, turn: int) -> Any:
        return bytes([1 + turn % 255]) * (count if rank == size - 1 else count // 3)

    return Sample(f"{count} bytes", make)


def _tensor(rank: int, size: int, turn: int) -> Any:
    return torch.arange(6, dtype=torch.float32) + 10 * rank + 100 * turn


def _tensor_view(rank: int, size: int, turn: int) -> Any:
    return (torch.arange(60).reshape(6, 10) + 100 * rank + turn)[1:4, ::3]


def _items(rank: int, size: int, turn: int) -> Any:
    return [(rank, turn, item) for item in range(3)]


def _number(rank: int, size: int, turn: int) -> Any:
    return 10 * rank + turn + 1


_OBJECTS = (
    PLAIN,
    Sample("no items on one rank", _nothing_on_one),
    Sample("None on one rank", _none_on_one),
    Sample("as many items as the rank says", _items_by_rank),
    Sample("falsy things", _falsy),
    Sample("another type on each rank", _own_types),
    Sample("other keys on each rank", _own_keys),
    Sample("nested deeper on each rank", _own_nesting),
    Sample("text beyond ASCII", _text),
    Sample("whole numbers as keys", _int_keys),
    Sample("tuples", _tuples),
    Sample("the order of keys", _key_order),
    Sample("numbers at their edges", _numbers),
    Sample("what is no number", _not_a_number),
    Sample("bytes", _bytes),
    Sample("sets", _sets),
    Sample("tensors of another dtype on each rank", _dtypes),
    Sample("tensors of another shape on each rank", _shapes),
    Sample("views of tensors", _views),
    Sample("arrays", _arrays),
    *(sized(count) for count in (255, 256, 4096, 65_535, 65_536)),
    Sample("a megabyte on the last rank", _one_big),
)

SAMPLES: dict[str, tuple[Sample, ...]] = {
    "objects": _OBJECTS,
    "dicts": tuple(
        sample
        for sample in _OBJECTS
        if sample.name in {PLAIN.name, "other keys on each rank", "nested deeper on each rank", "whole numbers as keys"}
    ),
    "lists": (
        Sample("three items on each rank", _items),
        Sample("no items on one rank", _nothing_on_one),
        Sample("as many items as the rank says", _items_by_rank),
    ),
    "tensors": (
        Sample("a tensor of six numbers", _tensor),
        Sample("a view of a tensor", _tensor_view),
        Sample("tensors of another dtype on each rank", _dtypes),
        Sample("tensors of another shape on each rank", _shapes),
    ),
    "equal tensors": (Sample("a tensor of six numbers", _tensor), Sample("a view of a tensor", _tensor_view)),
    "numbers": (Sample("a number on each rank", _number),),
}
"""By what a gather takes."""
