"""Scores travel pickled, padded to the longest."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import torch
import torch.distributed as dist

__all__ = ["best", "gather_scores"]


def gather_scores(scores: Mapping[str, float], group: dist.ProcessGroup | None = None) -> list[dict[str, float]]:
    """What each rank of `group` gave as `scores`, in rank order, on every rank; a collective call."""
    device = torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")
    mine = torch.frombuffer(bytearray(pickle.dumps(dict(scores))), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, torch.tensor([mine.numel()], device=device), group=group)
    longest = max(int(size) for size in sizes)
    padded = torch.zeros(longest, dtype=torch.uint8, device=device)
    padded[: mine.numel()] = mine
    arrived = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(arrived, padded, group=group)
    # Ranks of one job write this and nobody else.
    return [pickle.loads(one[: int(size)].cpu().numpy().tobytes()) for one, size in zip(arrived, sizes, strict=True)]


def best(scores: Mapping[str, float], group: dist.ProcessGroup | None = None) -> tuple[str, float] | None:
    """The highest score of all ranks and its name, the same on every rank; None where nobody has any."""
    everybodys = [item for each in gather_scores(scores, group) for item in each.items()]
    return max(everybodys, key=lambda item: (item[1], item[0]), default=None)
