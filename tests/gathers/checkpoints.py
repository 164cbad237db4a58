"""Checkpoints that tests save and load: another state on each rank and on each turn."""

from __future__ import annotations

import pathlib
from typing import Any

import torch
import torch.distributed as dist

from rankdrill.gathers import gather_and_save_checkpoint, load_checkpoint
from tests.gathers.attempts import TIMEOUT_S


def state(turn: int) -> dict[str, Any]:
    """A data loader's state, say: another one on each rank."""
    rank = dist.get_rank()
    return {"rank": rank, "turn": turn, "order": torch.arange(rank, rank + 3), "rng": torch.get_rng_state()}


def save(path: Any, turn: int = 0, **kwargs: Any) -> None:
    shared = {"weights": torch.full((50_000,), float(turn)), "saver": dist.get_rank()}
    gather_and_save_checkpoint(path, state(turn), shared, timeout=TIMEOUT_S, **kwargs)


def load(path: Any, **kwargs: Any) -> tuple[Any, ...]:
    """What came back, in few words: this rank's state, the shared one, the world size it is of."""
    got = load_checkpoint(path, timeout=TIMEOUT_S, **kwargs)
    local, shared = got.local_state, got.shared_state
    return local["rank"], local["turn"], local["order"].tolist(), shared["weights"][-1].item(), got.world_size


def loaded(turn: int) -> list[tuple[Any, ...]]:
    """What `load` returns on four ranks that had saved on that turn."""
    return [(rank, turn, [rank, rank + 1, rank + 2], float(turn), 4) for rank in range(4)]


def in_directory(path: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())
