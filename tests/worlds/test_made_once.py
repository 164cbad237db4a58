"""Calls that whoever asks first makes, and that are not made again: one rank that asks before the others is early."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import run


class Snapshot:
    """Of weights, whose norm costs a call."""

    def __init__(self) -> None:
        self.known: dict[str, float] = {}
        self.total: float | None = None

    @cached_property
    def norm(self) -> float:
        return summed()

    def in_total(self) -> float:
        if self.total is None:
            self.total = summed()
        return self.total

    def of(self, name: str) -> float:
        if name not in self.known:
            self.known[name] = summed()
        return self.known[name]

    def anew(self) -> float:
        return summed()


def summed() -> float:
    x = torch.ones(2)
    dist.all_reduce(x)
    return float(x.sum())


def asks_for_a_property(rank: RankContext) -> float:
    weights = Snapshot()
    if rank.index == 2:
        print(weights.norm)
    dist.broadcast(torch.ones(1), 0)
    return weights.norm


def asks_for_what_is_kept(rank: RankContext) -> float:
    weights = Snapshot()
    if rank.index == 2:
        print(weights.in_total())
    dist.broadcast(torch.ones(1), 0)
    return weights.in_total()


def asks_by_a_name(rank: RankContext) -> float:
    weights = Snapshot()
    if rank.index == 2:
        print(weights.of("layer"))
    dist.broadcast(torch.ones(1), 0)
    return weights.of("layer")


def asks_once_more(rank: RankContext) -> float:
    weights = Snapshot()
    if rank.index == 2:
        print(weights.anew())
    dist.broadcast(torch.ones(1), 0)
    return weights.anew()


def asks_for_another(rank: RankContext) -> float:
    weights, gradients = Snapshot(), Snapshot()
    if rank.index == 2:
        print(weights.norm)
    dist.broadcast(torch.ones(1), 0)
    return gradients.norm


def asks_by_another_name(rank: RankContext) -> float:
    weights = Snapshot()
    if rank.index == 2:
        print(weights.of("head"))
    dist.broadcast(torch.ones(1), 0)
    return weights.of("layer")


def gathers_ahead(rank: RankContext) -> None:
    """As prefetching does it: what was gathered ahead is not gathered again."""

    def gather() -> torch.Tensor:
        full = torch.ones(rank.world_size)
        dist.all_gather_into_tensor(full, torch.ones(1))
        return full

    ahead: list[torch.Tensor] | None = None
    for turn in range(3):
        full = ahead or gathered(gather)
        ahead = None
        if rank.index == 2 and turn < 2:
            ahead = gathered(gather)
        dist.all_reduce(full[0])


def gathered(gather: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    return [gather()]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (asks_for_another, FindingKind.EXTRA),
        (asks_by_another_name, FindingKind.EXTRA),
        (gathers_ahead, FindingKind.CALL_ORDERING),
        (asks_for_a_property, FindingKind.CALL_ORDERING),
        (asks_for_what_is_kept, FindingKind.CALL_ORDERING),
        (asks_by_a_name, FindingKind.CALL_ORDERING),
        (asks_once_more, FindingKind.EXTRA),
    ],
)
def test_who_asks_before_the_others(
    fresh: World, body: Callable[[RankContext], float | None], kind: FindingKind
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (kind, (2,))


def makes_only_its_own_groups(rank: RankContext) -> None:
    groups = {}
    for name, members in {"all": [0, 1, 2, 3], "some": [0, 1, 2]}.items():
        if rank.index not in members:
            continue
        groups[name] = dist.new_group(members)
    dist.barrier()


def test_of_a_group_that_is_left_out_it_is_told_how(fresh: World) -> None:
    (found,) = run(fresh, makes_only_its_own_groups, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.MISSING, (3,))
    assert "past it by `if rank.index not in members`" in str(found)
