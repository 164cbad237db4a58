"""Every gather under one signature, as its callers call it, and torch's own beside them."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from rankdrill.conformance.ways import At

__all__ = ["TIMEOUT_S", "here", "torchs"]

TIMEOUT_S = 30.0


def torchs(value: Any) -> list[Any]:
    """What torch's `all_gather_object` gives."""
    received = [None] * dist.get_world_size()
    dist.all_gather_object(received, value)
    return received


def here(directory: Any, *, weights_only: bool = False) -> At:
    """Where the gathers of these tests take place."""
    return At(dist.group.WORLD, str(directory), TIMEOUT_S, weights_only=weights_only)
