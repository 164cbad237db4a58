"""Tensors that lie in memory in another order than the other ranks': what gloo makes of them, told before it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from rankdrill import World
from rankdrill.boundary.gaps import MINDING_GAPS
from rankdrill.boundary.strides import MINDING_ORDER, memory_order
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome
from tests.torch_can import Can, needs

ROWS = 4
Make = Callable[[], torch.Tensor]
CONTIGUOUS: dict[str, Make] = {
    "contiguous": lambda: torch.arange(24.0).reshape(2, 3, 4),
    "one column, transposed": lambda: torch.arange(4.0).reshape(4, 1).t(),
    "no element": lambda: torch.zeros(0, 4).t(),
    "one dimension": lambda: torch.arange(4.0),
    "an image of one channel, channels last": lambda: torch.ones(2, 1, 3, 4).to(memory_format=torch.channels_last),
    "transposed twice": lambda: torch.arange(6.0).reshape(2, 3).t().t(),
    "one row, made to look otherwise": lambda: torch.arange(4.0).as_strided((1, 4), (7, 1)),
    "with gaps": lambda: torch.arange(60.0).reshape(6, 10)[:, :4].t(),
}
OTHERWISE: dict[str, tuple[Make, tuple[int, ...]]] = {
    "transposed": (lambda: torch.arange(6.0).reshape(2, 3).t(), (1, 0)),
    "channels last": (lambda: torch.ones(2, 3, 5, 4).to(memory_format=torch.channels_last), (0, 2, 3, 1)),
    "permuted around one": (lambda: torch.arange(6.0).reshape(2, 1, 3).permute(2, 1, 0), (2, 0)),
}


@pytest.mark.parametrize("make", CONTIGUOUS.values(), ids=list(CONTIGUOUS))
def test_what_lies_in_the_order_of_its_indices(make: Make) -> None:
    assert memory_order(make()) == ()


@pytest.mark.parametrize(("make", "order"), OTHERWISE.values(), ids=list(OTHERWISE))
def test_what_lies_in_another(make: Make, order: tuple[int, ...]) -> None:
    assert memory_order(make()) == order


# ---------------------------------------------------------------------------------------------------- what gloo does


def matrix(rank: int) -> torch.Tensor:
    return (torch.arange(16.0) + 100 * rank).reshape(ROWS, ROWS)


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values at the same indices, column by column in memory."""
    return tensor.t().contiguous().t()


def _calls(lay: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Callable[[], bool]]:
    """Whether each op comes to what it should on this rank of 2, where its tensors are laid so."""
    rank, sum_ = dist.get_rank(), matrix(0) + matrix(1)
    mine = lay(matrix(rank))

    def all_reduce() -> bool:
        dist.all_reduce(mine)
        return torch.equal(mine, sum_)

    def broadcast() -> bool:
        dist.broadcast(mine, 0)
        return torch.equal(mine, matrix(0))

    def reduce() -> bool:
        dist.reduce(mine, 1)
        return rank == 0 or torch.equal(mine, sum_)

    def reduce_scatter_tensor() -> bool:
        half = torch.zeros(ROWS // 2, ROWS)
        dist.reduce_scatter_tensor(half, mine)
        return torch.equal(half, sum_[2 * rank : 2 * rank + 2])

    def all_gather() -> bool:
        there = [lay(torch.zeros(ROWS, ROWS)) for _ in range(2)]
        dist.all_gather(there, mine)
        return all(torch.equal(tensor, matrix(other)) for other, tensor in enumerate(there))

    def all_gather_into_tensor() -> bool:
        there = lay(torch.zeros(2 * ROWS, ROWS))
        dist.all_gather_into_tensor(there, mine)
        return torch.equal(there, torch.cat([matrix(0), matrix(1)]))

    def gather() -> bool:
        there = [lay(torch.zeros(ROWS, ROWS)) for _ in range(2)] if rank == 1 else None
        dist.gather(mine, there, 1)
        return there is None or all(torch.equal(tensor, matrix(other)) for other, tensor in enumerate(there))

    def all_to_all() -> bool:
        there = [lay(torch.zeros(ROWS, ROWS)) for _ in range(2)]
        dist.all_to_all(there, [mine, lay(matrix(rank))])
        return all(torch.equal(tensor, matrix(other)) for other, tensor in enumerate(there))

    def coalesced() -> bool:
        with dist.distributed_c10d._coalescing_manager():
            dist.all_reduce(mine)
        return torch.equal(mine, sum_)

    def functional() -> bool:
        return torch.equal(torch.clone(torch.as_tensor(funcol.all_reduce(mine, "sum", [0, 1]))), sum_)

    bodies: tuple[Any, ...] = (all_reduce, broadcast, reduce, reduce_scatter_tensor)
    bodies += (all_gather, all_gather_into_tensor, gather, all_to_all, coalesced, functional)
    return {body.__name__: body for body in bodies}


_COPYING = ("all_gather", "all_gather_into_tensor", "gather", "all_to_all", "coalesced", "functional")
ALIKE = [op for op in _COPYING if op not in MINDING_GAPS]
"""What is right however each rank's tensors lie."""


def needs_for(op: str) -> None:
    if op == "all_to_all":
        needs(Can.ALL_TO_ALL)


def _is_right(op: str, odd: tuple[int, ...]) -> bool:
    return _calls(lambda tensor: turned(tensor) if dist.get_rank() in odd else tensor)[op]()


@pytest.fixture(scope="module")
def bare() -> Iterator[World]:
    with World(2, contracts=False) as world:
        yield world


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("op", sorted(MINDING_ORDER))
def test_gloo_does_mix_them_up(bare: World, op: str, odd: int) -> None:
    """The day that this passes for some torch, an innocent call would be refused there."""
    assert False in bare.run(_is_right, op, (odd,)).unwrap()


def found(outcome: Outcome) -> str:
    (finding,) = outcome.findings
    assert (finding.kind, finding.argument) == (FindingKind.LAYOUT, "strides")
    return str(finding)


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("op", sorted(MINDING_ORDER))
def test_it_is_told_before_it_does(two: World, op: str, odd: int) -> None:
    told = found(two.run(_is_right, op, (odd,), deadline=60))
    assert told.startswith("memory layout, nobody in the majority: ")
    assert f"rank {odd} enters {op} #0 on 'default' with float32[4,4] strides (1,4), at " in told
    assert f"rank {1 - odd} enters {op} #0 on 'default' with float32[4,4], contiguous, at " in told
    assert told.count("test_orders.py") >= 2


@pytest.mark.parametrize("op", [*sorted(MINDING_ORDER), *ALIKE])
def test_what_all_ranks_do_alike_is_right(two: World, op: str) -> None:
    needs_for(op)
    outcome = two.run(_is_right, op, (0, 1))
    assert not outcome.findings
    assert outcome.unwrap() == [True, True]


@pytest.mark.parametrize("op", ALIKE)
def test_what_torch_puts_in_order_itself_is_let(two: World, op: str) -> None:
    needs_for(op)
    for odd in (0, 1):
        outcome = two.run(_is_right, op, (odd,))
        assert not outcome.findings
        assert outcome.unwrap() == [True, True]


# ---------------------------------------------------------------------------------------------------- who is told


def _one_of_four(odd: int, most_turned: bool, asynchronous: bool) -> None:
    for step in range(50):
        weights = matrix(dist.get_rank())
        if step == 40 and (dist.get_rank() == odd) is not most_turned:
            weights = turned(weights)
        work = dist.all_reduce(weights, async_op=asynchronous)
        if work is not None:
            work.wait()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("most_turned", [False, True])
def test_the_odd_one_is_the_culprit(four: World, most_turned: bool, asynchronous: bool) -> None:
    outcome = four.run(_one_of_four, 2, most_turned, asynchronous, deadline=60)
    told = found(outcome)
    laid = "[4,4], contiguous" if most_turned else "[4,4] strides (1,4)"
    assert outcome.findings[0].culprits == (2,)
    assert f"memory layout: rank 2 enters all_reduce #40 on 'default' with float32{laid}" in told


def test_an_image_whose_channels_are_last_on_one_rank(four: World) -> None:
    def body() -> None:
        images = torch.ones(2, 3, 4, 5)
        if dist.get_rank() == 1:
            images = images.to(memory_format=torch.channels_last)
        dist.broadcast(images, 0)

    outcome = four.run(body, deadline=60)
    assert "rank 1 enters broadcast #0 on 'default' with float32[2,3,4,5] strides (60,1,15,3)" in found(outcome)
    assert outcome.findings[0].culprits == (1,)


def test_a_line_that_has_been_taken_with_others_before(two: World) -> None:
    """What is known of a call by its line and its shapes says nothing of strides."""

    def body() -> None:
        for step in range(3):
            whole, half = matrix(0), torch.zeros(ROWS // 2, ROWS)
            dist.reduce_scatter_tensor(half, turned(whole) if step == 2 and dist.get_rank() == 1 else whole)

    assert "reduce_scatter_tensor #2 on 'default'" in found(two.run(body, deadline=60))


def test_without_contracts_it_is_the_backends_business(bare: World) -> None:
    assert bare.run(_is_right, "all_reduce", (1,)).findings == ()


# ---------------------------------------------------------------------------------------------------- what is right


def test_what_only_looks_otherwise_is_right(four: World) -> None:
    def body() -> list[list[float]]:
        rank, totals = dist.get_rank(), list[list[float]]()
        row = torch.arange(4.0)
        for odd, even in (
            (row.clone().reshape(4, 1).t(), row.reshape(1, 4).clone()),
            (row.clone().as_strided((1, 4), (9, 1)), row.reshape(1, 4).clone()),
            (row.clone(), row.reshape(2, 2).clone()),
            (torch.ones(1, 4, 1, 1).to(memory_format=torch.channels_last), torch.ones(1, 4, 1, 1)),
        ):
            tensor = odd if rank == 1 else even
            dist.all_reduce(tensor)
            totals.append(tensor.flatten().tolist())
        return totals

    outcome = four.run(body)
    assert not outcome.findings
    row = [0.0, 4.0, 8.0, 12.0]
    assert outcome.unwrap() == [[row, row, row, [4.0] * 4]] * 4


def test_of_another_shape_nobody_can_say_which_order_fits(two: World) -> None:
    """A matrix that one rank has turned, and the other has not: both lie in memory as they did before."""

    def body() -> torch.Tensor:
        weights = torch.arange(12.0).reshape(3, 4)
        given = weights.t() if dist.get_rank() == 1 else weights
        for _ in range(3):
            dist.all_reduce(given)
        return weights

    outcome = two.run(body)
    assert not outcome.findings
    assert all(torch.equal(weights, torch.arange(12.0).reshape(3, 4) * 8) for weights in outcome.unwrap())
