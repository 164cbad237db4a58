"""What a rank knows of itself: handed to bodies that ask for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.distributed.distributed_c10d import Store

    from rankdrill.boundary import Boundary

__all__ = ["RankContext"]


@dataclass
class RankContext:
    """What a rank knows of itself. `kept` lives as long as the rank does: a warm pytest session, say."""

    index: int
    world_size: int
    device: torch.device
    directory: Path
    store: Store
    boundary: Boundary
    group: Any  # the default process group that bodies find
    kept: dict[str, Any] = field(default_factory=dict)
