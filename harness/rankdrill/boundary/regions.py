"""The memory that tensors lie in: which of it a collective uses, and whether an access touches that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.modes_seam import plainly
from rankdrill.step import NOBODY

__all__ = ["IN_PLACE", "Buffers", "Extent", "Region", "buffers_of", "extent_of", "region_of"]

IN_PLACE = frozenset({"all_reduce", "all_reduce_coalesced", "reduce", "recv"})
"""Here a tensor is overwritten on every rank; in a reduce, other ranks than the root get what is left of the work."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where the elements of a tensor lie: the address of the first, bytes of each, (bytes from one to the next, how
    many) along every dimension.
    """

    first: int
    width: int
    rows: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The address behind the last element."""
        return self.first + _reach(self.rows, self.width)

    def meets(self, start: int, end: int) -> bool:
        """Whether one of the elements lies between the two addresses: what lies in its gaps is not part of it."""
        return _meet(self.first, self.rows, self.width, start, end)


@dataclass(frozen=True, slots=True)
class Region:
    """The memory of one tensor of a collective under way. It does not keep that alive: torch's work does."""

    start: int
    end: int
    storage: StorageWeakRef

    @property
    def gone(self) -> bool:
        """Whether the memory is free again, for other tensors to lie in."""
        return bool(self.storage.expired())  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a collective reads, and what it writes, on this rank."""

    inputs: tuple[Region, ...] = ()
    outputs: tuple[Region, ...] = ()


def buffers_of(op: str, args: dict[str, Any], place: int) -> Buffers:
    """The buffers of the collective `op` on the rank that is `place` of the group."""
    given = tuple(filter(None, map(region_of, flatten(args.get("tensors")))))
    root = getattr(args.get("opts"), "rootRank", NOBODY)
    if op in IN_PLACE or (op == "broadcast" and root != place):
        return Buffers(outputs=given)
    return Buffers(given, tuple(filter(None, map(region_of, flatten(args.get("outputs"))))))


def region_of(tensor: torch.Tensor) -> Region | None:
    """The memory from the first to the last element of `tensor`; None where it has none of its own."""
    extent = extent_of(tensor)
    if extent is None:
        return None
    with plainly():
        return Region(extent.first, extent.end, StorageWeakRef(tensor.untyped_storage()))  # type: ignore[no-untyped-call]


def extent_of(tensor: torch.Tensor) -> Extent | None:
    """Where the elements of `tensor` lie; None where it has none, or is made of other tensors that have them."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return None
    try:
        with plainly():
            first, width = tensor.data_ptr(), tensor.element_size()
            if not first or not tensor.numel():
                return None
            steps = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    except RuntimeError:  # a sparse tensor, one under a transform
        return None
    return Extent(first, width, tuple((step * width, count) for step, count in steps if step and count > 1))


def _reach(rows: Sequence[tuple[int, int]], width: int) -> int:
    return width + sum(step * (count - 1) for step, count in rows)


def _meet(first: int, rows: Sequence[tuple[int, int]], width: int, start: int, end: int) -> bool:
    if not rows:
        return first < end and first + width > start
    (step, count), *inner = rows
    lowest = max((start - first - _reach(inner, width)) // step + 1, 0)
    highest = min((end - first - 1) // step, count - 1)
    # Between two rows that reach into the region lie only such as are whole within it.
    if highest - lowest > 1:
        return True
    return any(_meet(first + row * step, inner, width, start, end) for row in range(lowest, highest + 1))
