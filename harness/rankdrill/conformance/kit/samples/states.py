"""Samples of several tensors by name, as modules and optimizers have them."""

from __future__ import annotations

from typing import Any

import torch

from rankdrill.conformance.kit.samples.sample import Sample
from rankdrill.conformance.kit.samples.tensors import tensor

__all__ = ["STATES", "nothing_by_name"]


def _state(rank: int, size: int, turn: int) -> Any:
    return {"count": torch.tensor(rank + turn), "weight": tensor(rank, size, turn)}


def _state_of_own_keys(rank: int, size: int, turn: int) -> Any:
    return {**_state(rank, size, turn), f"of rank {rank}": torch.ones(2) * turn}


def _state_in_another_order(rank: int, size: int, turn: int) -> Any:
    state = {"b": torch.tensor([1.0 + rank]), "a": torch.tensor([100.0 + turn]), "c": torch.tensor([-1.0])}
    return dict(sorted(state.items(), reverse=bool(rank % 2)))


def _no_state_on_one(rank: int, size: int, turn: int) -> Any:
    return {} if rank == turn % size else _state(rank, size, turn)


def nothing_by_name(rank: int, size: int, turn: int) -> Any:
    return {}


def _state_of_own_lengths(rank: int, size: int, turn: int) -> Any:
    return {"seen": torch.arange((rank + turn) % size * 2, dtype=torch.float32), "at": torch.tensor([turn])}


STATES = (
    Sample("two tensors by name", _state),
    Sample("names of its own on each rank", _state_of_own_keys),
    Sample("names in another order on each rank", _state_in_another_order),
    Sample("the order of names", _state_in_another_order, ordered=True),
    Sample("no tensors on one rank", _no_state_on_one),
    Sample("no tensors on any rank", nothing_by_name),
    Sample("tensors of another length on each rank", _state_of_own_lengths),
)
