"""Samples of what has names: tensors, metrics and numbers by name; and numbers without."""

from __future__ import annotations

from typing import Any

import torch

from rankdrill.conformance.kit.sample import Make, Sample
from rankdrill.conformance.kit.tensors import tensor

__all__ = ["NAMED_NUMBERS", "NAMED_SCALARS", "NAMED_TENSORS", "NUMBERS", "no_state"]


def _state(rank: int, size: int, turn: int) -> Any:
    return {"count": torch.tensor(rank + turn), "weight": tensor(rank, size, turn)}


def _state_of_own_keys(rank: int, size: int, turn: int) -> Any:
    return {**_state(rank, size, turn), f"of rank {rank}": torch.ones(2) * turn}


def _state_in_another_order(rank: int, size: int, turn: int) -> Any:
    state = {"b": torch.tensor([1.0 + rank]), "a": torch.tensor([100.0 + turn]), "c": torch.tensor([-1.0])}
    return dict(sorted(state.items(), reverse=bool(rank % 2)))


def _no_state_on_one(rank: int, size: int, turn: int) -> Any:
    return {} if rank == turn % size else _state(rank, size, turn)


def no_state(rank: int, size: int, turn: int) -> Any:
    return {}


def _state_of_own_lengths(rank: int, size: int, turn: int) -> Any:
    return {"seen": torch.arange((rank + turn) % size * 2, dtype=torch.float32), "at": torch.tensor([turn])}


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
        turns = (make(rank, size, turn + more).items() for more in range(20))
        return {f"{name} of {number}": value for number, items in enumerate(turns) for name, value in items}

    return many


def _turned_round(make: Make) -> Make:
    """What `make` has by name, with the names in another order on each second rank."""

    def turned_round(rank: int, size: int, turn: int) -> Any:
        named = make(rank, size, turn)
        return dict(reversed(named.items())) if (rank + turn) % 2 else named

    return turned_round


def _metrics(what: str, make: Make) -> tuple[Sample, ...]:
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


NAMED_TENSORS = (
    Sample("two tensors by name", _state),
    Sample("names of its own on each rank", _state_of_own_keys),
    Sample("names in another order on each rank", _state_in_another_order),
    Sample("the order of names", _state_in_another_order, ordered=True),
    Sample("no tensors on one rank", _no_state_on_one),
    Sample("no tensors on any rank", no_state),
    Sample("tensors of another length on each rank", _state_of_own_lengths),
)
NAMED_SCALARS = _metrics("scalars", _scalars)
NAMED_NUMBERS = _metrics("numbers", _numbers_by_name)
NUMBERS = (Sample("a number on each rank", _number), Sample("whole numbers and others", _own_numbers))
