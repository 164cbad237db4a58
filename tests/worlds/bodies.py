"""Bodies that travel to ranks by name, and types that only some processes can import."""

from __future__ import annotations

import torch
import torch.distributed as dist


class NeedsTwoError(Exception):
    """Pickles, but does not load: its constructor wants more than `args` holds."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class SilentError(Exception):
    """Neither pickles nor shows a message."""

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("no")

    def __str__(self) -> str:
        raise ValueError("no")


def total(start: float = 0.0) -> float:
    """The sum of all ranks' numbers, by a collective."""
    tensor = torch.full((1,), float(dist.get_rank()) + start)
    dist.all_reduce(tensor)
    return float(tensor)


def rank() -> int:
    return dist.get_rank()


def raise_needs_two() -> None:
    raise NeedsTwoError("one", "two")


def raise_silent() -> None:
    raise SilentError
