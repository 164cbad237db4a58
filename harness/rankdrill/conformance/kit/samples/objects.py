"""Samples of objects, dicts and lists: what hand-written gathers have been seen to change, drop or mix up."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy
import torch

from rankdrill.conformance.kit.samples.sample import Sample
from rankdrill.conformance.kit.samples.states import nothing_by_name
from rankdrill.conformance.kit.samples.tensors import dtypes, no_rows, own_length, own_shape

__all__ = ["DICTS", "LISTS", "MUTABLE", "MUTABLE_ITEMS", "OBJECTS", "sized"]

Pair = namedtuple("Pair", "first second")


def _plain(rank: int, size: int, turn: int) -> Any:
    return {"rank": rank, "turn": turn, "words": ["a", "bc"] * (rank + 1)}


def _nothing_on_one(rank: int, size: int, turn: int) -> Any:
    return [] if rank == turn % size else [rank, turn]


def _none_on_one(rank: int, size: int, turn: int) -> Any:
    return None if rank == turn % size else {"rank": rank, "turn": turn}


def _items_by_rank(rank: int, size: int, turn: int) -> Any:
    return [[rank, turn, item] for item in range((rank + turn) % size * 3)]


def _falsy(rank: int, size: int, turn: int) -> Any:
    return (0, "", False, 0.0, (), {}, b"", None)[(rank + size * turn) % 8]


def _nothing_anywhere(rank: int, size: int, turn: int) -> Any:
    before = size * (size - 1) // 2 - 1  # of smaller worlds, where each has a turn for each rank: here come others
    return ([], {}, (), "", None, b"")[(before + turn) % 6]


def _tensor_on_one(rank: int, size: int, turn: int) -> Any:
    others = (None, [rank, turn], {"rank": rank})[turn % 3]
    return torch.tensor([[1.0, turn], [rank, 4.0]]) if rank == turn % size else others


def _own_types(rank: int, size: int, turn: int) -> Any:
    return (1 + turn, 1.0 + turn, True, "1", b"1", [1], (1,), {1: turn})[(rank + size * turn) % 8]


def _own_keys(rank: int, size: int, turn: int) -> Any:
    return {f"of rank {rank}": [rank, turn], **({"more": {"deep": rank}} if rank % 2 else {})}


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
    return {"z": 0, "a": turn, "m": {"y": rank, "b": turn}, "ordered": OrderedDict([("y", rank), ("b", turn)])}


def _numbers(rank: int, size: int, turn: int) -> Any:
    return [0.1 + rank, 1e300, -0.0, float("inf"), 2**63 - 1, 2**63, -(2**70), 3 + turn * 1j, True]


def _not_a_number(rank: int, size: int, turn: int) -> Any:
    return [numpy.array([float("nan"), rank, turn]), float("nan")]


def _bytes(rank: int, size: int, turn: int) -> Any:
    return [b"\x00" * (rank + 1), b"ends in zeros\x00\x00", bytes(range(256)), bytearray([turn])]


def _sets(rank: int, size: int, turn: int) -> Any:
    return [{rank, turn, 100}, frozenset({"a", rank})]


def _views(rank: int, size: int, turn: int) -> Any:
    base = torch.arange(60).reshape(6, 10) + 100 * rank + turn
    return [base[1:3], base.t(), base[::2, 1::3], torch.tensor(rank), torch.empty(0, 3)]


def _arrays(rank: int, size: int, turn: int) -> Any:
    grid = numpy.arange(12, dtype=numpy.int16).reshape(3, 4) + rank + turn
    return [grid[::-1], numpy.asfortranarray(grid), numpy.array(["a", None, rank], dtype=object), numpy.float32(rank)]


def _large_parts(rank: int, size: int, turn: int) -> Any:
    # Large enough to go beside the pickle, where a gather or pickle protocol 5 does that, and of odd lengths.
    weights = torch.arange(301, dtype=torch.float32) + 10 * rank + turn
    return {"weights": weights, "mask": torch.arange(1501) % 3 == rank % 3, "rows": numpy.arange(777) * (rank + turn)}


def _gradients(rank: int, size: int, turn: int) -> Any:
    return [torch.full((3,), float(rank + turn), requires_grad=True), torch.ones(2)]


def _one_big(rank: int, size: int, turn: int) -> Any:
    return bytes([turn % 256]) * (1 << 20 if rank == size - 1 else rank)


PLAIN = Sample("a small dict", _plain)


def sized(count: int) -> Sample:
    """Some `count` bytes on the last rank, fewer on the others."""

    def make(rank: int, size: int, turn: int) -> Any:
        return bytes([1 + turn % 255]) * (count if rank == size - 1 else count // 3)

    return Sample(f"{count} bytes", make, count)


def _items(rank: int, size: int, turn: int) -> Any:
    return [(rank, turn, item) for item in range(3)]


def _mutable(rank: int, size: int, turn: int) -> Any:
    kept = {"list": [rank, turn, 7], "tensor": torch.arange(540) + 10 * rank + turn, "dict": {"deep": [rank]}}
    return {**kept, "array": numpy.arange(3) + rank, "bytes": bytearray([turn, rank])}


def _mutable_and_small(rank: int, size: int, turn: int) -> Any:
    return {"list": [rank, turn], "dict": {"deep": [rank]}}


def _mutable_items(rank: int, size: int, turn: int) -> Any:
    return [[rank, turn], {"rank": rank}, list(range(3))]


def _none_among_items(rank: int, size: int, turn: int) -> Any:
    return [None, [rank, turn], None] if rank == turn % size else [[rank, turn], None]


def _no_items(rank: int, size: int, turn: int) -> Any:
    return []


def _no_keys_on_one(rank: int, size: int, turn: int) -> Any:
    return {} if rank == turn % size else {f"of rank {rank}": [turn]}


def _falsy_items(rank: int, size: int, turn: int) -> Any:
    return [0, "", [], (rank,), {}, False]


def _mixed_items(rank: int, size: int, turn: int) -> Any:
    return [(rank, turn), "naïve 日本", {turn: rank}, 0.5, {rank}, b"ends in zeros\x00\x00"]


OBJECTS = (
    PLAIN,
    Sample("no items on one rank", _nothing_on_one),
    Sample("None on one rank", _none_on_one),
    Sample("no items on any rank", _nothing_anywhere),
    Sample("no keys on one rank", _no_keys_on_one),
    Sample("as many items as the rank says", _items_by_rank),
    Sample("falsy things", _falsy),
    Sample("a tensor on one rank alone", _tensor_on_one),
    Sample("another type on each rank", _own_types),
    Sample("other keys on each rank", _own_keys),
    Sample("nested deeper on each rank", _own_nesting),
    Sample("text beyond ASCII", _text),
    Sample("whole numbers as keys", _int_keys),
    Sample("tuples", _tuples),
    Sample("the order of keys", _key_order, ordered=True),
    Sample("numbers at their edges", _numbers),
    Sample("what is no number", _not_a_number),
    Sample("bytes", _bytes),
    Sample("sets", _sets),
    Sample("tensors of another dtype on each rank", dtypes),
    Sample("tensors of another shape on each rank", own_shape),
    Sample("tensors of another number of rows on each rank", own_length),
    Sample("tensors without rows", no_rows),
    Sample("views of tensors", _views),
    Sample("arrays", _arrays),
    Sample("several tensors and arrays of some kilobytes", _large_parts, 1 << 14),
    Sample("a tensor that asks for gradients", _gradients),
    *(sized(count) for count in (255, 256, 4096, 65_535, 65_536)),
    Sample("a megabyte on the last rank", _one_big, 1 << 20),
)

_OF_DICTS = (
    "no keys on one rank",
    "other keys on each rank",
    "nested deeper on each rank",
    "whole numbers as keys",
    "the order of keys",
)
DICTS = (
    PLAIN,
    Sample("no keys on any rank", nothing_by_name),
    *(sample for sample in OBJECTS if sample.name in _OF_DICTS),
)
LISTS = (
    Sample("three items on each rank", _items),
    Sample("no items on one rank", _nothing_on_one),
    Sample("no items on any rank", _no_items),
    Sample("as many items as the rank says", _items_by_rank),
    Sample("items that are None", _none_among_items),
    Sample("falsy items", _falsy_items),
    Sample("items of many types", _mixed_items),
)
MUTABLE = (Sample("what can be changed", _mutable), Sample("what can be changed", _mutable_and_small))
"""What has parts that can be changed in place; the second, where the first is beyond the bound."""
MUTABLE_ITEMS = (Sample("what can be changed", _mutable_items),)
