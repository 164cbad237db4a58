"""Views with gaps: what gloo makes of them, told before it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

from rankdrill import World
from rankdrill.boundary import torch_seam
from rankdrill.boundary.gaps import first_with_gaps, has_gaps
from rankdrill.diagnosis import FindingKind
from rankdrill.worlds import Outcome
from tests.torch_can import Can, can, needs

Body = Callable[[], "tuple[torch.Tensor, torch.Tensor]"]
WITH_GAPS: dict[str, Callable[[], torch.Tensor]] = {
    "columns": lambda: torch.arange(60.0).reshape(6, 10)[1:5, ::3],
    "its rows shorter": lambda: torch.arange(60.0).reshape(6, 10)[1:5, :4],
    "every second row": lambda: torch.arange(80.0).reshape(8, 10)[::2, 2:6],
    "one column": lambda: torch.arange(60.0).reshape(6, 10)[:4, 2],
    "transposed": lambda: torch.arange(60.0).reshape(6, 10)[1:5, ::3].t(),
}
WITHOUT: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.arange(16.0).reshape(4, 4),
    "rows": lambda: torch.arange(60.0).reshape(6, 10)[2:6],
    "dense and transposed": lambda: torch.arange(16.0).reshape(4, 4).t(),
    "dense and permuted": lambda: torch.arange(24.0).reshape(4, 3, 2).permute(2, 0, 1),
    "channels last": lambda: torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
    "part of one row": lambda: torch.arange(60.0).reshape(6, 10)[2:3, 2:6],
    "one element": lambda: torch.arange(60.0).reshape(6, 10)[2:3, 2:3],
    "no element": lambda: torch.arange(60.0).reshape(6, 10)[2:2, ::3],
}


@pytest.mark.parametrize("make", WITH_GAPS.values(), ids=list(WITH_GAPS))
def test_gaps_are_seen(make: Callable[[], torch.Tensor]) -> None:
    assert has_gaps(make())
    assert first_with_gaps("all_reduce", {"tensors": [make()]}) is not None
    assert first_with_gaps("all_gather", {"tensors": [make()]}) is None


def test_what_is_expanded_has_them_too() -> None:
    assert has_gaps(torch.ones(1).expand(3))
    assert has_gaps(torch.ones(4).expand(3, 4))


@pytest.mark.parametrize("make", WITHOUT.values(), ids=list(WITHOUT))
def test_what_lies_side_by_side_has_none(make: Callable[[], torch.Tensor]) -> None:
    assert not has_gaps(make())
    assert first_with_gaps("all_reduce", {"tensors": [make()]}) is None


def _ops(make: Callable[[], torch.Tensor]) -> dict[str, Body]:
    """What minds gaps, each with what it comes to and what it should on rank 1 of 2."""
    rank = dist.get_rank()

    def all_reduce() -> tuple[torch.Tensor, torch.Tensor]:
        tensor, doubled = make(), make() * 2
        dist.all_reduce(tensor)
        return tensor, doubled

    def broadcast() -> tuple[torch.Tensor, torch.Tensor]:
        tensor = make() if rank == 0 else torch.zeros(make().shape)
        dist.broadcast(tensor, 0)
        return tensor, make()

    def reduce() -> tuple[torch.Tensor, torch.Tensor]:
        tensor, doubled = make(), make() * 2
        dist.reduce(tensor, 1)
        return tensor, doubled if rank == 1 else tensor

    def scatter_in() -> tuple[torch.Tensor, torch.Tensor]:
        tensor = torch.zeros(make().shape)
        dist.scatter(tensor, [make(), make()] if rank == 0 else None)
        return tensor, make()

    def scatter_out() -> tuple[torch.Tensor, torch.Tensor]:
        tensor = make().zero_()
        dist.scatter(tensor, [make().contiguous()] * 2 if rank == 0 else None)
        return tensor, make()

    def reduce_scatter_out() -> tuple[torch.Tensor, torch.Tensor]:
        tensor = make().zero_()
        dist.reduce_scatter(tensor, [make().contiguous()] * 2)
        return tensor, make() * 2

    def all_to_all_single_out() -> tuple[torch.Tensor, torch.Tensor]:
        tensor, given = make().zero_(), make().contiguous()
        dist.all_to_all_single(tensor, given)
        half = len(given) // 2
        return tensor, torch.cat([given[rank * half : (rank + 1) * half]] * 2)

    def gather_in() -> tuple[torch.Tensor, torch.Tensor]:
        there = [torch.zeros(make().shape) for _ in range(2)]
        dist.gather(make(), there if rank == 1 else None, 1)
        return (torch.stack(there), torch.stack([make(), make()])) if rank == 1 else (make(), make())

    bodies = (all_reduce, broadcast, reduce, scatter_in, scatter_out, reduce_scatter_out, all_to_all_single_out)
    return {body.__name__: body for body in (*bodies, gather_in)}


OPS = ["all_reduce", "broadcast", "reduce", "scatter_in", "scatter_out", "reduce_scatter_out", "all_to_all_single_out"]
OPS += ["gather_in"] if torch_seam.GATHERS_AS_IT_LIES else []
BY_INDEX = [op for op in ("all_to_all_single_out", "gather_in") if op in OPS]
"""Where the other side lies in the order of its indices."""


def _is_right(op: str, layout: str) -> bool:
    torch.manual_seed(0)
    came, wanted = _ops({**WITH_GAPS, **WITHOUT}[layout])[op]()
    return torch.equal(came, wanted)


@pytest.fixture(scope="module")
def bare() -> Iterator[World]:
    with World(2, contracts=False) as world:
        yield world


@pytest.mark.parametrize("layout", WITH_GAPS)
@pytest.mark.parametrize("op", OPS)
def test_gloo_does_get_them_wrong(bare: World, op: str, layout: str) -> None:
    """The day that this passes for some torch, an innocent call would be refused there."""
    needs_for(op)
    assert False in bare.run(_is_right, op, layout).unwrap()


@pytest.mark.parametrize("op", BY_INDEX)
def test_gloo_does_get_another_order_wrong(bare: World, op: str) -> None:
    assert False in bare.run(_is_right, op, "dense and transposed").unwrap()


def needs_for(op: str) -> None:
    if op == "reduce_scatter_out":
        needs(Can.REDUCE_SCATTER)


def found(outcome: Outcome) -> str:
    (finding,) = outcome.findings
    assert finding.kind is FindingKind.LAYOUT
    return str(finding)


@pytest.mark.parametrize("op", OPS)
def test_they_are_told_at_the_call(two: World, op: str) -> None:
    outcome = two.run(_is_right, op, "columns", deadline=60)
    told = found(outcome)
    assert "float32[4,4] with strides (10, 3), which gloo takes for contiguous; give it .contiguous()" in told
    assert "test_gaps.py" in told


@pytest.mark.parametrize("op", BY_INDEX)
def test_another_order_is_told_at_the_call(two: World, op: str) -> None:
    told = found(two.run(_is_right, op, "dense and transposed", deadline=60))
    assert "float32[4,4] with strides (1, 4), which gloo takes for contiguous; give it .contiguous()" in told


@pytest.mark.parametrize("layout", WITHOUT)
def test_what_lies_side_by_side_is_let(two: World, layout: str) -> None:
    outcome = two.run(_is_right, "all_reduce", layout)
    assert not outcome.findings
    assert outcome.unwrap() == [True, True]


def test_ops_that_get_it_right_are_let(two: World) -> None:
    gathers, of_lists = not torch_seam.GATHERS_AS_IT_LIES, can(Can.REDUCE_SCATTER)

    def body() -> list[bool]:
        make = WITH_GAPS["columns"]
        there = [torch.zeros(4, 4) for _ in range(2)]
        dist.all_gather(there, make())
        into = [make().zero_() for _ in range(2)]
        dist.all_gather(into, make().contiguous())
        coalesced = [make(), make()]
        with dist.distributed_c10d._coalescing_manager():
            for tensor in coalesced:
                dist.all_reduce(tensor)
        functional = funcol.all_reduce(make(), "sum", [0, 1])
        scattered = make().zero_()
        dist.reduce_scatter_tensor(scattered, torch.cat([make(), make()]))
        parts: list[torch.Tensor] = []
        if of_lists:
            parts.append(torch.zeros(4, 4))
            dist.reduce_scatter(parts[0], [make(), make()])
        if gathers:
            gathered = [torch.zeros(4, 4) for _ in range(2)]
            dist.gather(make(), gathered if dist.get_rank() == 0 else None)
            there += gathered if dist.get_rank() == 0 else []
        right = [torch.equal(tensor, make()) for tensor in (*there, *into)]
        doubled = (*coalesced, torch.as_tensor(functional), scattered, *parts)
        return right + [torch.equal(torch.clone(tensor), make() * 2) for tensor in doubled]

    for rank, right in enumerate(two.run(body).unwrap()):
        assert right == [True] * (8 + of_lists + 2 * (gathers and rank == 0))


def test_a_line_that_has_been_taken_with_others_before(two: World) -> None:
    """What is known of a call by its line and its shapes says nothing of strides."""

    def body() -> None:
        whole = torch.ones(4, 8)
        for view in (whole[:, :4].contiguous(), whole[:, :4].contiguous(), whole[:, :4]):
            dist.all_reduce(view)

    outcome = two.run(body, deadline=60)
    assert "gave all_reduce #2 on 'default' a float32[4,4] with strides (8, 1)" in found(outcome)


def test_without_contracts_it_is_the_backends_business(bare: World) -> None:
    def body() -> None:
        dist.all_reduce(torch.ones(4, 8)[:, :4])

    assert bare.run(body).unwrap() == [None, None]
