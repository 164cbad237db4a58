"""Bodies whose ranks wait for ever from a known moment on: the last step that one of them takes, or its return."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.distributed as dist

from rankdrill.worlds.context import RankContext

__all__ = ["BODIES"]

Body: TypeAlias = Callable[[RankContext], int]
LONG_S = 600.0


def _computes() -> None:
    """In Python and in torch, as a loop over batches does."""
    weights, until = torch.randn(64, 64), time.monotonic() + LONG_S
    while time.monotonic() < until:
        weights = torch.tanh(weights @ weights)


def leaves_a_call_out(rank: RankContext) -> int:
    dist.all_reduce(torch.ones(4))
    if rank.index:
        dist.all_reduce(torch.ones(4))
    return time.monotonic_ns()


def makes_another_call(rank: RankContext) -> int:
    dist.all_reduce(torch.ones(4)) if rank.index else dist.broadcast(torch.ones(4), 0)
    return time.monotonic_ns()


def takes_two_groups_in_another_order(rank: RankContext) -> int:
    groups = [dist.new_group(), dist.new_group()]
    for group in groups if rank.index else groups[::-1]:
        dist.all_reduce(torch.ones(4), group=group)
    return time.monotonic_ns()


def never_sends(rank: RankContext) -> int:
    if rank.index == 0:
        dist.recv(torch.ones(4), src=1)
    return time.monotonic_ns()


def all_receive_first(rank: RankContext) -> int:
    dist.recv(torch.ones(4), src=(rank.index - 1) % rank.world_size)
    dist.send(torch.ones(4), dst=(rank.index + 1) % rank.world_size)
    return time.monotonic_ns()


def never_sets_a_key(rank: RankContext) -> int:
    if rank.index == 0:
        rank.store.get("plan")
    return time.monotonic_ns()


def leaves_a_call_out_while_another_computes(rank: RankContext) -> int:
    """The last rank is no member of the group, and goes on for minutes."""
    others = dist.new_group(list(range(rank.world_size - 1)))
    if rank.index == rank.world_size - 1:
        _computes()
    elif rank.index:
        dist.all_reduce(torch.ones(4), group=others)
    return time.monotonic_ns()


def never_sends_while_another_computes(rank: RankContext) -> int:
    if rank.index == rank.world_size - 1:
        _computes()
    elif rank.index == 0:
        dist.recv(torch.ones(4), src=1)
    return time.monotonic_ns()


BODIES: dict[str, tuple[Body, int]] = {
    body.__name__.replace("_", " "): (body, fewest)
    for body, fewest in (
        (leaves_a_call_out, 2),
        (makes_another_call, 2),
        (takes_two_groups_in_another_order, 2),
        (never_sends, 2),
        (all_receive_first, 2),
        (never_sets_a_key, 2),
        (leaves_a_call_out_while_another_computes, 4),
        (never_sends_while_another_computes, 3),
    )
}
"""What to run, by name, and of how many ranks at least."""
