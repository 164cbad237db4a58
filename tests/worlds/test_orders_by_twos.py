"""Scatters: what is meant for a rank, and what it takes it into, in two orders. Told wherever gloo mixes them up."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from rankdrill import World
from rankdrill.boundary.strides import MINDING_ORDER_BY_TWOS, laid_in
from rankdrill.diagnosis import Finding, FindingKind
from rankdrill.worlds import Outcome
from tests.torch_can import Can, needs
from tests.worlds.test_orders import matrix, turned

DEADLINE_S = 60.0
DRAWN = 24
Turned = tuple[bool, ...]
"""By rank, or by whom it is meant for: whether it is transposed."""


def laid(tensor: torch.Tensor, otherwise: bool) -> torch.Tensor:
    return turned(tensor) if otherwise else tensor


def scatter(outputs: Turned, lists: tuple[Turned, ...]) -> bool:
    """From rank 0."""
    me, size = dist.get_rank(), dist.get_world_size()
    mine = laid(torch.zeros(4, 4), outputs[me])
    given = [laid(matrix(rank), lists[0][rank]) for rank in range(size)] if me == 0 else None
    dist.scatter(mine, given, src=0)
    return torch.equal(mine, matrix(me))


def reduce_scatter(outputs: Turned, lists: tuple[Turned, ...]) -> bool:
    me, size = dist.get_rank(), dist.get_world_size()
    mine = laid(torch.zeros(4, 4), outputs[me])
    dist.reduce_scatter(mine, [laid(matrix(10 * me + rank), lists[me][rank]) for rank in range(size)])
    return torch.equal(mine, torch.stack([matrix(10 * other + me) for other in range(size)]).sum(0))


SCATTERS = {"scatter": scatter, "reduce_scatter": reduce_scatter}
assert set(SCATTERS) == MINDING_ORDER_BY_TWOS


@pytest.fixture(scope="module")
def bare() -> Iterator[World]:
    with World(3, contracts=False) as world:
        yield world


@pytest.fixture(scope="module")
def three() -> Iterator[World]:
    with World(3) as world:
        yield world


@pytest.mark.parametrize("seed", range(DRAWN))
@pytest.mark.parametrize("op", SCATTERS)
def test_it_is_told_where_gloo_mixes_them_up_and_nowhere_else(bare: World, three: World, op: str, seed: int) -> None:
    if op == "reduce_scatter":
        needs(Can.REDUCE_SCATTER)
    draw = random.Random(seed)
    outputs = tuple(draw.random() < 0.4 for _ in range(3))
    lists = tuple(tuple(each if draw.random() < 0.85 else not each for each in outputs) for _ in range(3))
    outcome = three.run(SCATTERS[op], outputs, lists, deadline=DEADLINE_S)
    if all(bare.run(SCATTERS[op], outputs, lists).unwrap()):
        assert outcome.unwrap() == [True] * 3
    else:
        found = only(outcome)
        assert found.kind is FindingKind.LAYOUT
        assert "test_orders_by_twos.py" in str(found)


def only(outcome: Outcome) -> Finding:
    (found,) = outcome.findings
    return found


NONE = (False,) * 4


def one_of(four: int) -> Turned:
    return tuple(rank == four for rank in range(4))


@pytest.mark.parametrize(
    ("op", "outputs", "lists", "culprits"),
    [
        ("scatter", one_of(2), (NONE,) * 4, (2,)),  # takes it into a transposed one
        ("scatter", NONE, (one_of(3),) * 4, (0,)),  # gives one that is
        ("scatter", NONE, (one_of(0),) * 4, (0,)),  # to itself
        ("reduce_scatter", one_of(1), (NONE,) * 4, (1,)),
        ("reduce_scatter", NONE, (NONE, NONE, NONE, (True,) * 4), (3,)),
        ("reduce_scatter", NONE, (NONE, NONE, one_of(0), NONE), (2,)),
        ("scatter", (True,) * 4, (NONE,) * 4, (0,)),  # as it is for the root itself, too
        ("reduce_scatter", (True,) * 4, (NONE,) * 4, ()),
    ],
)
def test_who_does_it(
    four: World, op: str, outputs: Turned, lists: tuple[Turned, ...], culprits: tuple[int, ...]
) -> None:
    if op == "reduce_scatter":
        needs(Can.REDUCE_SCATTER)
    found = only(four.run(SCATTERS[op], outputs, lists, deadline=DEADLINE_S))
    assert (found.kind, found.culprits) == (FindingKind.LAYOUT, culprits)
    assert found.step.startswith(f"{op} #0 on 'default'")
    assert "strides" in found.sides[0].did


def test_both_ends_are_told(four: World) -> None:
    found = only(four.run(scatter, one_of(2), (NONE,) * 4, deadline=DEADLINE_S))
    taken, given = found.sides
    assert (taken.ranks, taken.did) == ((2,), "enters scatter #0 on 'default' with float32[4,4] strides into (1,4)")
    assert given.ranks == (0,)
    assert given.did.endswith("with float32[4,4]+float32[4,4]+float32[4,4]+1 more, contiguous")


def test_in_the_fiftieth_round_of_a_group(four: World) -> None:
    def body() -> None:
        group, me = dist.new_group([0, 1, 3]), dist.get_rank()
        for step in range(52):
            if me != 2:
                mine = laid(torch.zeros(4, 4), step == 49 and me == 3)
                dist.reduce_scatter(mine, [matrix(0)] * 3, group=group)

    needs(Can.REDUCE_SCATTER)
    found = only(four.run(body, deadline=DEADLINE_S))
    assert (found.culprits, found.number) == ((3,), 49)


def test_of_another_shape_nobody_can_say_which_order_fits(four: World) -> None:
    def body() -> list[float]:
        me = dist.get_rank()
        mine = torch.zeros(2, 3).t() if me == 1 else torch.zeros(2, 3)
        given = [torch.arange(6.0).reshape(2, 3)] * 4 if me == 0 else None
        dist.scatter(mine, given, src=0)
        return (mine.t() if me == 1 else mine).flatten().tolist()

    outcome = four.run(body)
    assert not outcome.findings
    assert outcome.unwrap() == [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]] * 4


@pytest.mark.parametrize("op", sorted(MINDING_ORDER_BY_TWOS))
def test_where_no_group_is_known_nothing_is_kept(op: str) -> None:
    tensor = turned(matrix(0))
    assert laid_in(op, [tensor] * 2, [tensor], None, 0, 2, 0) == ()
