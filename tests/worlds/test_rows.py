"""Ranks in rows: one that goes on past the end of its row, and one that leaves a neighbour out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds.context import RankContext
from tests.worlds.test_stores import run


def exchange(neighbours: Sequence[int]) -> None:
    """The edge with each of them, both ways."""
    ops = []
    for peer in neighbours:
        ops.append(dist.P2POp(dist.isend, torch.ones(2), peer))
        ops.append(dist.P2POp(dist.irecv, torch.zeros(2), peer))
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def in_a_line(rank: RankContext) -> list[int]:
    return [peer for peer in (rank.index - 1, rank.index + 1) if 0 <= peer < rank.world_size]


def goes_round_the_end(rank: RankContext) -> None:
    neighbours = in_a_line(rank)
    exchange([*neighbours, 0] if rank.index == 3 else neighbours)
    dist.barrier()


def goes_round_an_order_of_its_own(rank: RankContext) -> None:
    order = [2, 0, 3, 1]
    position = order.index(rank.index)
    exchange([order[position - 1], *order[position + 1 : position + 2]])


@pytest.mark.parametrize(("body", "culprit"), [(goes_round_the_end, 3), (goes_round_an_order_of_its_own, 2)])
def test_who_takes_the_other_end_for_a_neighbour(
    fresh: World, body: Callable[[RankContext], None], culprit: int
) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (culprit,))


def takes_the_first_rank_for_none(rank: RankContext) -> None:
    """``if left``: of a ring, in which the last and the first are neighbours."""
    left, right = (rank.index - 1) % rank.world_size, (rank.index + 1) % rank.world_size
    exchange([peer for peer in (left, right) if peer or rank.index != 1])


def leaves_its_left_one_out(rank: RankContext) -> None:
    neighbours = in_a_line(rank)
    exchange(neighbours[1:] if rank.index == 1 else neighbours)


def takes_and_does_not_give(rank: RankContext) -> None:
    for _ in range(2):
        ops = []
        for peer in in_a_line(rank):
            if (rank.index, peer) != (1, 0):
                ops.append(dist.P2POp(dist.isend, torch.ones(2), peer))
            ops.append(dist.P2POp(dist.irecv, torch.zeros(2), peer))
        for work in dist.batch_isend_irecv(ops):
            work.wait()


@pytest.mark.parametrize("body", [takes_the_first_rank_for_none, leaves_its_left_one_out, takes_and_does_not_give])
def test_who_leaves_a_neighbour_out(fresh: World, body: Callable[[RankContext], None]) -> None:
    (found,) = run(fresh, body, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (1,))


def two_rows_of_three(rank: RankContext) -> None:
    """The first of the second row has a left neighbour by its number alone."""
    column = rank.index % 3
    left = [rank.index - 1] if column or rank.index == 3 else []
    exchange([*left, *([rank.index + 1] if column < 2 else [])])


def test_who_goes_on_into_the_row_before() -> None:
    with World(6) as six:
        (found,) = run(six, two_rows_of_three, deadline=30).findings
    assert (found.kind, found.culprits) == (FindingKind.UNMATCHED, (3,))
