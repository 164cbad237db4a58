"""Samples of what is added up: scalars and numbers by name, as losses and metrics come, and numbers alone."""

from __future__ import annotations

from typing import Any

import torch

from rankdrill.conformance.kit.samples.sample import Make, Sample

__all__ = ["NUMBERS", "NUMBERS_BY_NAME", "SCALARS_BY_NAME"]

_TURNS = 20  # of two each, for forty


def _scalars(rank: int, size: int, turn: int) -> Any:
    return {"loss": torch.tensor(0.5 + rank + 4.0 * turn), "loss_box": torch.tensor(16.0 * (rank + 1) - turn)}


def _numbers_by_name(rank: int, size: int, turn: int) -> Any:
    return {name: scalar.item() for name, scalar in _scalars(rank, size, turn).items()}


def _one_of(make: Make) -> Make:
    """Only the first of what `make` has by name."""
    return lambda rank, size, turn: dict(list(make(rank, size, turn).items())[:1])


def _many_of(make: Make) -> Make:
    """What `make` has by name, for turn after turn."""

    def many(rank: int, size: int, turn: int) -> Any:
        turns = (make(rank, size, turn + more).items() for more in range(_TURNS))
        return {f"{name} of {number}": value for number, items in enumerate(turns) for name, value in items}

    return many


def _turned_round(make: Make) -> Make:
    """What `make` has by name, with the names in another order on each second rank."""

    def turned_round(rank: int, size: int, turn: int) -> Any:
        named = make(rank, size, turn)
        return dict(reversed(named.items())) if (rank + turn) % 2 else named

    return turned_round


def _by_name(what: str, make: Make) -> tuple[Sample, ...]:
    """Dicts of the same names on all ranks, as metrics and losses come."""
    return (
        Sample(f"two {what} by name", make),
        Sample(f"one {what[:-1]} by name", _one_of(make)),
        Sample(f"forty {what} by name", _many_of(make)),
        Sample("names in another order on each rank", _turned_round(make)),
    )


def _own_numbers(rank: int, size: int, turn: int) -> Any:
    return 2 * rank if (rank + turn) % 2 else rank + 0.5


def _beyond_24_bits(rank: int, size: int, turn: int) -> Any:
    return (1 << 25) + 2 * rank + 2 * turn + 1  # as samples and tokens are counted; the sum is exact in a double


def _beyond_24_bits_by_name(rank: int, size: int, turn: int) -> Any:
    return {"seen": _beyond_24_bits(rank, size, turn), "right": rank}


def _number(rank: int, size: int, turn: int) -> Any:
    return 10 * rank + turn + 1


SCALARS_BY_NAME = _by_name("scalars", _scalars)
_EXACT = "whole numbers of more than 24 bits"
NUMBERS_BY_NAME = (*_by_name("numbers", _numbers_by_name), Sample(_EXACT, _beyond_24_bits_by_name))
NUMBERS = (
    Sample("a number on each rank", _number),
    Sample("whole numbers and others", _own_numbers),
    Sample(_EXACT, _beyond_24_bits),
)
