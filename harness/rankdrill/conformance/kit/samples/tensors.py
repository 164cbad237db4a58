"""Samples of one tensor on each rank: alike, of other lengths, of other shapes, of other dtypes."""

from __future__ import annotations

from typing import Any

import torch

from rankdrill.conformance.kit.samples.sample import Sample

__all__ = ["EQUAL", "RAGGED", "ROWS", "TENSORS", "WHOLE", "dtypes", "no_rows", "own_length", "own_shape", "tensor"]


def tensor(rank: int, size: int, turn: int) -> Any:
    return torch.arange(6, dtype=torch.float32) + 10 * rank + 100 * turn


def _view(rank: int, size: int, turn: int) -> Any:
    return (torch.arange(60.0).reshape(6, 10) + 100 * rank + turn)[1:4, ::3]


def own_length(rank: int, size: int, turn: int) -> Any:
    return torch.arange(3 * ((rank + turn) % size + 1), dtype=torch.float32).reshape(-1, 3) + 10 * rank + 100 * turn


def own_shape(rank: int, size: int, turn: int) -> Any:
    return torch.full((rank + 1, 2 + (turn + size - rank) % 3), float(10 * rank + turn))


def no_rows(rank: int, size: int, turn: int) -> Any:
    return torch.empty(0, 3 + turn)


def _turned(rank: int, size: int, turn: int) -> Any:
    return (torch.arange(12.0).reshape(3, 4) + 100 * rank + 1000 * turn).t()


def _turned_on_one(rank: int, size: int, turn: int) -> Any:
    turned = _turned(rank, size, turn)
    return turned if rank == turn % size else turned.contiguous()


def _no_rows_on_one(rank: int, size: int, turn: int) -> Any:
    return torch.full((0 if rank == turn % size else 2, 3), float(10 * rank + turn))


def _scalar(rank: int, size: int, turn: int) -> Any:
    return torch.tensor(10.0 * rank + turn)


def _whole_numbers(rank: int, size: int, turn: int) -> Any:
    return torch.tensor([2**60 + rank, -turn, rank])


def dtypes(rank: int, size: int, turn: int) -> Any:
    kinds = (torch.float32, torch.int32, torch.bfloat16, torch.bool, torch.int64, torch.float64)
    return torch.tensor([turn, 1, 0, 2]).to(kinds[(rank + turn) % len(kinds)])


WHOLE = Sample("a tensor of whole numbers", _whole_numbers)
EQUAL = (
    Sample("a tensor of six numbers", tensor),
    Sample("a view of a tensor", _view),
    WHOLE,
    Sample("a turned tensor", _turned),
    Sample("a turned tensor on one rank", _turned_on_one),
    Sample("no rows on any rank", no_rows),
)
ROWS = (
    *EQUAL,
    Sample("tensors of another length on each rank", own_length),
    Sample("no rows on one rank", _no_rows_on_one),
)
RAGGED = (
    *ROWS,
    Sample("tensors of another shape on each rank", own_shape),
    Sample("tensors without dimensions", _scalar),
)
TENSORS = (*RAGGED, Sample("tensors of another dtype on each rank", dtypes))
