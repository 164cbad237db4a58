"""The payloads of a drill: each derivable on every rank, so that each can tell by itself what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch

__all__ = ["PAYLOADS", "SMALL", "TENSOR_PAYLOADS", "Payload"]

SMALL = "small"
_BIG_BYTES = 8 << 20
_ROOM = 16_000
_TENSOR_ITEMS = 12


@dataclass(frozen=True, slots=True)
class Payload:
    """`make(rank, size, turn)` builds what a rank contributes; `room` bounds its pickled bytes on any rank."""

    make: Callable[[int, int, int], Any]
    about: str
    room: int = _ROOM


def _small(rank: int, size: int, turn: int) -> Any:
    return {"rank": rank, "turn": turn, "text": "é" * (1 + 5 * rank), "raw": bytes([rank, turn]) * (37 * rank)}


def _views(rank: int, size: int, turn: int) -> Any:
    base = torch.arange(1000, dtype=torch.float32) + 1000 * rank + turn
    grid = numpy.arange(60, dtype=numpy.int16).reshape(6, 10) + rank * 7 + turn
    return {"slice": base[2 + rank : 5 + 2 * rank], "turned": base[:6].view(2, 3).t(), "strided": grid[::2, 1::3]}


def _empty(rank: int, size: int, turn: int) -> Any:
    return (b"", "", [], {}, torch.empty(0, 3), numpy.empty((2, 0), dtype=numpy.uint8), ())[(rank + turn) % 7]


def _none(rank: int, size: int, turn: int) -> Any:
    # On some ranks only: a gather that drops a None then shifts the others out of rank order.
    return None if (rank + turn) % 2 == 0 else [rank, None]


def _uneven(rank: int, size: int, turn: int) -> Any:
    return bytes([turn]) * (400_000 if rank == size - 1 else rank)


def _big(rank: int, size: int, turn: int) -> Any:
    return torch.full((_BIG_BYTES // 4,), 1000 * turn + rank, dtype=torch.int32)


def _tensor(rank: int, size: int, turn: int) -> Any:
    return torch.arange(_TENSOR_ITEMS, dtype=torch.float64) + 100 * rank + 10_000 * turn


def _tensor_view(rank: int, size: int, turn: int) -> Any:
    return (torch.arange(600, dtype=torch.int32).view(20, 30) + 1000 * rank + turn)[3:7, ::5]


def _tensor_empty(rank: int, size: int, turn: int) -> Any:
    return torch.empty(0, 4)


PAYLOADS: dict[str, Payload] = {
    SMALL: Payload(_small, "a small dict, larger on each rank"),
    "views": Payload(_views, "views of larger tensors and arrays"),
    "empty": Payload(_empty, "an empty thing, another on each rank"),
    "none": Payload(_none, "None on every other rank"),
    "uneven": Payload(_uneven, "400 kB on the last rank, next to nothing elsewhere", room=1 << 19),
    "8mib": Payload(_big, "a tensor of 8 MiB on each rank", room=_BIG_BYTES + _ROOM),
}
"""Payloads for gathers of any object."""

TENSOR_PAYLOADS: dict[str, Payload] = {
    SMALL: Payload(_tensor, "a tensor of 12 numbers"),
    "views": Payload(_tensor_view, "a strided view of a larger tensor"),
    "empty": Payload(_tensor_empty, "a tensor of no elements"),
    "8mib": PAYLOADS["8mib"],
}
"""Payloads for gathers of one tensor of equal size per rank."""
