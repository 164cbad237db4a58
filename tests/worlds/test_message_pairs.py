"""Pairs that exchange in turn, as a sort by odd and even phases does: who leaves early, and who has a share by rank."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import run

Body = Callable[[RankContext], None]


def exchange(row: torch.Tensor, partner: int, lower: bool) -> None:
    if lower:
        dist.send(row, dst=partner)
        dist.recv(row, src=partner)
    else:
        dist.recv(row, src=partner)
        dist.send(row, dst=partner)


def in_phases(rank: RankContext, leaves: Callable[[int], bool]) -> None:
    row = torch.ones(3)
    for phase in range(rank.world_size):
        up = rank.index % 2 == phase % 2
        partner = rank.index + 1 if up else rank.index - 1
        if leaves(partner):
            return
        if 0 <= partner < rank.world_size:
            exchange(row, partner, lower=up)


def leaves_where_it_has_no_partner_above(rank: RankContext) -> None:
    in_phases(rank, lambda partner: partner >= rank.world_size)


def leaves_where_it_has_no_partner_below(rank: RankContext) -> None:
    in_phases(rank, lambda partner: partner < 0)


@pytest.mark.parametrize(
    ("body", "who"), [(leaves_where_it_has_no_partner_above, 3), (leaves_where_it_has_no_partner_below, 0)]
)
def test_who_leaves_its_pair_is_at_fault(fresh: World, body: Body, who: int) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (who,))


def each_sends_its_share(rank: RankContext, takes: Callable[[int], int]) -> None:
    """Five requests: the first has three of them, the second two."""
    if rank.index < 2:
        for request in range(5):
            if request % 2 == rank.index:
                dist.send(torch.ones(2), dst=rank.index + 2)
    else:
        for _ in range(takes(rank.index)):
            dist.recv(torch.ones(2), src=rank.index - 2)
    dist.barrier()


def takes_as_many_as_the_other(rank: RankContext) -> None:
    each_sends_its_share(rank, lambda index: math.ceil(5 / 2))


def takes_one_less_than_its_share(rank: RankContext) -> None:
    each_sends_its_share(rank, lambda index: 2)


@pytest.mark.parametrize("body", [takes_as_many_as_the_other, takes_one_less_than_its_share])
def test_who_sends_a_share_by_its_rank_need_not_send_as_many_as_another(fresh: World, body: Body) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert found.kind is FindingKind.UNMATCHED
    assert set(found.culprits).isdisjoint({0, 1})


def exchanges_by_halves(rank: RankContext) -> None:
    """The way into the other half of an exchange would have shown in a message."""
    size = rank.world_size
    for phase in range(size):
        partner = rank.index + 1 if rank.index % 2 == phase % 2 else rank.index - 1
        if partner < 0:
            continue
        if partner >= size:
            break
        exchange(torch.ones(3), partner, rank.index < partner)


def test_it_is_told_how_it_left(fresh: World) -> None:
    (found,) = run(fresh, exchanges_by_halves, deadline=30).findings
    assert found.culprits == (3,)
    assert "by `if partner >= size`" in found.lines[0]
    assert "if lower" not in found.lines[0]
