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

from rankdrill.conformance.adapter import Adapter
from rankdrill.conformance.gives import GIVES

__all__ = ["PLAIN", "SAMPLES", "Sample", "fitting", "mutable_of", "samples_of", "sized"]

_PICKLED = 64  # bytes, at most, that a pickle has besides
Pair = namedtuple("Pair", "first second")


@dataclass(frozen=True)
class Sample:
    """`make(rank, size, turn)` builds what a rank contributes: on one of them of `least` bytes or more.
    With `ordered` the order of keys has to arrive.
    """

    name: str
    make: Callable[[int, int, int], Any]
    least: int = 0
    ordered: bool = False


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


def _dtypes(rank: int, size: int, turn: int) -> Any:
    kinds = (torch.float32, torch.int32, torch.float64, torch.int64, torch.bfloat16, torch.bool)
    return torch.tensor([turn, 1, 0, 2]).to(kinds[rank % len(kinds)])


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


def _shapes(rank: int, size: int, turn: int) -> Any:
    return torch.full((rank + 1, 2 + turn % 3), float(rank))


def _one_big(rank: int, size: int, turn: int) -> Any:
    return bytes([turn % 256]) * (1 << 20 if rank == size - 1 else rank)


PLAIN = Sample("a small dict", _plain)


def sized(count: int) -> Sample:
    """Some `count` bytes on the last rank, fewer on the others."""

    def make(rank: int, size: int, turn: int) -> Any:
        return bytes([1 + turn % 255]) * (count if rank == size - 1 else count // 3)

    return Sample(f"{count} bytes", make, count)


def _tensor(rank: int, size: int, turn: int) -> Any:
    return torch.arange(6, dtype=torch.float32) + 10 * rank + 100 * turn


def _tensor_view(rank: int, size: int, turn: int) -> Any:
    return (torch.arange(60).reshape(6, 10) + 100 * rank + turn)[1:4, ::3]


def _items(rank: int, size: int, turn: int) -> Any:
    return [(rank, turn, item) for item in range(3)]


def _own_length(rank: int, size: int, turn: int) -> Any:
    return torch.arange(3 * ((rank + turn) % size + 1), dtype=torch.float32).reshape(-1, 3) + 10 * rank + 100 * turn


def _own_shape(rank: int, size: int, turn: int) -> Any:
    return torch.full((rank + 1, 2 + (turn + size - rank) % 3), float(10 * rank + turn))


def _no_rows_on_one(rank: int, size: int, turn: int) -> Any:
    return torch.full((0 if rank == turn % size else 2, 3), float(10 * rank + turn))


def _scalar(rank: int, size: int, turn: int) -> Any:
    return torch.tensor(10.0 * rank + turn)


def _whole_numbers(rank: int, size: int, turn: int) -> Any:
    return torch.tensor([2**60 + rank, -turn, rank])


def _mutable(rank: int, size: int, turn: int) -> Any:
    kept = {"list": [rank, turn, 7], "tensor": torch.arange(540) + 10 * rank + turn, "dict": {"deep": [rank]}}
    return {**kept, "array": numpy.arange(3) + rank, "bytes": bytearray([turn, rank])}


def _mutable_items(rank: int, size: int, turn: int) -> Any:
    return [[rank, turn], {"rank": rank}, list(range(3))]


def _none_among_items(rank: int, size: int, turn: int) -> Any:
    return [None, [rank, turn], None] if rank == turn % size else [[rank, turn], None]


def _falsy_items(rank: int, size: int, turn: int) -> Any:
    return [0, "", [], (rank,), {}, False]


def _mixed_items(rank: int, size: int, turn: int) -> Any:
    return [(rank, turn), "naïve 日本", {turn: rank}, 0.5, {rank}, b"ends in zeros\x00\x00"]


def _state(rank: int, size: int, turn: int) -> Any:
    return {"count": torch.tensor(rank + turn), "weight": _tensor(rank, size, turn)}


def _state_of_own_keys(rank: int, size: int, turn: int) -> Any:
    return {**_state(rank, size, turn), f"of rank {rank}": torch.ones(2) * turn}


def _state_in_another_order(rank: int, size: int, turn: int) -> Any:
    state = {"b": torch.tensor([1.0 + rank]), "a": torch.tensor([100.0 + turn]), "c": torch.tensor([-1.0])}
    return dict(sorted(state.items(), reverse=bool(rank % 2)))


def _no_state_on_one(rank: int, size: int, turn: int) -> Any:
    return {} if rank == turn % size else _state(rank, size, turn)


def _state_of_own_lengths(rank: int, size: int, turn: int) -> Any:
    return {"seen": torch.arange((rank + turn) % size * 2, dtype=torch.float32), "at": torch.tensor([turn])}


def _scalars(rank: int, size: int, turn: int) -> Any:
    return {"loss": torch.tensor(0.5 + rank + 4.0 * turn), "loss_box": torch.tensor(16.0 * (rank + 1) - turn)}


def _numbers_by_name(rank: int, size: int, turn: int) -> Any:
    return {name: scalar.item() for name, scalar in _scalars(rank, size, turn).items()}


def _one_of(make: Callable[[int, int, int], Any]) -> Callable[[int, int, int], Any]:
    """Only the first of what `make` has by name."""
    return lambda rank, size, turn: dict(list(make(rank, size, turn).items())[:1])


def _many_of(make: Callable[[int, int, int], Any]) -> Callable[[int, int, int], Any]:
    """What `make` has by name, for turn after turn."""

    def many(rank: int, size: int, turn: int) -> Any:
        turns = (make(rank, size, turn + more).items() for more in range(20))
        return {f"{name} of {number}": value for number, items in enumerate(turns) for name, value in items}

    return many


def _turned_round(make: Callable[[int, int, int], Any]) -> Callable[[int, int, int], Any]:
    """What `make` has by name, with the names in another order on each second rank."""

    def turned_round(rank: int, size: int, turn: int) -> Any:
        named = make(rank, size, turn)
        return dict(reversed(named.items())) if (rank + turn) % 2 else named

    return turned_round


def _metrics(what: str, make: Callable[[int, int, int], Any]) -> tuple[Sample, ...]:
    """Dicts of the same names on all ranks, as metrics and losses come."""
    return (
        Sample(f"two {what} by name", make),
        Sample(f"one {what[:-1]} by name", _one_of(make)),
        Sample(f"forty {what} by name", _many_of(make)),
        Sample("names in another order on each rank", _turned_round(make)),
    )


def _own_numbers(rank: int, size: int, turn: int) -> Any:
    return 2 * rank if (rank + turn) % 2 else rank + 0.5


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
    Sample("the order of keys", _key_order, ordered=True),
    Sample("numbers at their edges", _numbers),
    Sample("what is no number", _not_a_number),
    Sample("bytes", _bytes),
    Sample("sets", _sets),
    Sample("tensors of another dtype on each rank", _dtypes),
    Sample("tensors of another shape on each rank", _shapes),
    Sample("views of tensors", _views),
    Sample("arrays", _arrays),
    Sample("several tensors and arrays of some kilobytes", _large_parts, 1 << 14),
    Sample("a tensor that asks for gradients", _gradients),
    *(sized(count) for count in (255, 256, 4096, 65_535, 65_536)),
    Sample("a megabyte on the last rank", _one_big, 1 << 20),
)

_DICTS = ("other keys on each rank", "nested deeper on each rank", "whole numbers as keys", "the order of keys")
_ITEMS = Sample("three items on each rank", _items)
_TENSOR = Sample("a tensor of six numbers", _tensor)
_VIEW = Sample("a view of a tensor", _tensor_view)
_WHOLE = Sample("a tensor of whole numbers", _whole_numbers)
_ROWS = (
    _TENSOR,
    _VIEW,
    _WHOLE,
    Sample("tensors of another length on each rank", _own_length),
    Sample("no rows on one rank", _no_rows_on_one),
)
_RAGGED = (
    *_ROWS,
    Sample("tensors of another shape on each rank", _own_shape),
    Sample("tensors without dimensions", _scalar),
)

SAMPLES: dict[str, tuple[Sample, ...]] = {
    "objects": _OBJECTS,
    "functions": _OBJECTS,
    "dicts": (PLAIN, *(sample for sample in _OBJECTS if sample.name in _DICTS)),
    "lists": (
        _ITEMS,
        Sample("no items on one rank", _nothing_on_one),
        Sample("as many items as the rank says", _items_by_rank),
        Sample("items that are None", _none_among_items),
        Sample("falsy items", _falsy_items),
        Sample("items of many types", _mixed_items),
    ),
    "tensors": (*_RAGGED, Sample("tensors of another dtype on each rank", _dtypes)),
    "ragged tensors": _RAGGED,
    "tensors of rows": _ROWS,
    "equal tensors": (_TENSOR, _VIEW, _WHOLE),
    "dicts of tensors": (
        Sample("two tensors by name", _state),
        Sample("names of its own on each rank", _state_of_own_keys),
        Sample("names in another order on each rank", _state_in_another_order),
        Sample("the order of names", _state_in_another_order, ordered=True),
        Sample("no tensors on one rank", _no_state_on_one),
        Sample("tensors of another length on each rank", _state_of_own_lengths),
    ),
    "dicts of scalars": _metrics("scalars", _scalars),
    "dicts of numbers": _metrics("numbers", _numbers_by_name),
    "numbers": (Sample("a number on each rank", _number), Sample("whole numbers and others", _own_numbers)),
}
"""By what a gather takes."""

_MUTABLE = {
    "objects": Sample("what can be changed", _mutable),
    "functions": Sample("what can be changed", _mutable),
    "dicts": Sample("what can be changed", _mutable),
    "lists": Sample("what can be changed", _mutable_items),
}


def samples_of(adapter: Adapter) -> tuple[Sample, ...]:
    """What `adapter` is asked to carry; the first is the plain one."""
    if not isinstance(adapter.takes, str):
        return tuple(Sample(name, payload.make) for name, payload in adapter.takes.items())
    found = (sample for sample in SAMPLES[adapter.takes] if fitting(sample.least, adapter))
    # Whether the mean of whole numbers is one is open.
    means = adapter.receives in (GIVES["mean"], GIVES["mean at dst"])
    return tuple(sample for sample in found if not (means and sample is _WHOLE))


def mutable_of(adapter: Adapter) -> Sample:
    """What has parts that can be changed in place."""
    return _MUTABLE.get(str(adapter.takes)) or samples_of(adapter)[0]


def fitting(count: int, adapter: Adapter) -> bool:
    """Whether `count` bytes, pickled, are within the bound that the gather has."""
    return count + _PICKLED <= adapter.room
