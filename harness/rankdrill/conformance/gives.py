"""Who receives what: the shapes that gathers return, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["GIVES", "NOT_LOOKED_AT"]


class _NotLookedAt:
    def __repr__(self) -> str:
        return "<not looked at>"


NOT_LOOKED_AT = _NotLookedAt()
"""What is expected on a rank of which nothing is: whatever it returns is right."""


def _list(rank: int, payloads: Sequence[Any]) -> Any:
    return list(payloads)


def _dst(rank: int, payloads: Sequence[Any]) -> Any:
    return list(payloads) if rank == 0 else NOT_LOOKED_AT


def _dict(rank: int, payloads: Sequence[Any]) -> Any:
    return dict(enumerate(payloads))


def _concatenated(rank: int, payloads: Sequence[Any]) -> Any:
    import torch

    if all(isinstance(payload, torch.Tensor) and payload.dim() for payload in payloads):
        return torch.cat(list(payloads))
    return [item for payload in payloads for item in payload]


def _sum(rank: int, payloads: Sequence[Any]) -> Any:
    return sum(payloads[1:], payloads[0])


GIVES: dict[str, Callable[[int, Sequence[Any]], Any]] = {
    "list": _list,
    "dst": _dst,
    "dict": _dict,
    "concatenated": _concatenated,
    "sum": _sum,
}
"""A list on all ranks, or on rank 0 alone; a dict by rank; all ranks' items in one list, or in one tensor; the sum."""
