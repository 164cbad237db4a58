"""What arrives is what torch's own gather gives: types, values, layout, and what may be done with it."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist

import rankdrill
from rankdrill.gathers import all_gather_object, gather_object
from tests.drop_in import payloads
from tests.drop_in.payloads import nested
from tests.drop_in.ways import torchs
from tests.gathers.attempts import TIMEOUT_S, all_alike

MOST_DEEP = 8
# Of these the elements between their own are not shipped: they come without gaps.
WITH_GAPS = ("negated", "every third")


@pytest.fixture(scope="module")
def world() -> Any:
    with rankdrill.World(2) as world:
        yield world


def ours(value: Any) -> list[Any]:
    received = [None] * dist.get_world_size()
    all_gather_object(received, value, timeout=TIMEOUT_S)
    return received


def torchs_of(name: str, made: Any) -> list[Any]:
    """What torch's own gather gives of the payload `made`; that itself where torch 2.13 cannot pickle a newer dtype."""
    try:
        return torchs(made)
    except AttributeError:
        return [payloads.PAYLOADS[name]() for _ in range(dist.get_world_size())]


def told(value: Any, depth: int = 0) -> Any:
    """What can be told of a payload, in values that compare."""
    if isinstance(value, torch.Tensor):
        return told_of_tensor(value)
    if isinstance(value, numpy.ndarray):
        return type(value).__name__, str(value.dtype), value.shape, value.strides, value.flags.writeable, repr(value)
    if isinstance(value, torch.nn.Module):
        return type(value).__name__, told(dict(value.named_parameters()))
    if depth > MOST_DEEP:
        return "..."
    if isinstance(value, dict):
        return type(value).__name__, [(repr(key), told(each, depth + 1)) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__name__, [told(each, depth + 1) for each in value]
    if hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        return type(value).__name__, told(vars(value), depth + 1), repr(value).partition(" at 0x")[0]
    return type(value).__name__, repr(value)


def told_of_tensor(tensor: torch.Tensor) -> Any:
    common = type(tensor).__name__, tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad
    if tensor.is_nested:
        return *common, [told(part.detach().clone()) for part in tensor.unbind()]
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return *common, tensor.shape, repr(tensor)
    kept = vars(tensor)
    few = tensor.flatten()[:50] if tensor.numel() < 1_000_000 else tensor[:2]
    values = None if tensor.is_meta else repr(few.detach().resolve_conj().resolve_neg().tolist())
    return *common, tensor.shape, tensor.stride(), tensor.is_inference(), kept, values


@pytest.mark.parametrize("name", payloads.PAYLOADS)
def test_what_arrives(world: rankdrill.World, name: str) -> None:
    def body() -> Any:
        made = payloads.PAYLOADS[name]()
        theirs, own = torchs_of(name, made), ours(made)
        if name in WITH_GAPS:
            theirs = [tensor.contiguous() for tensor in theirs]
        return [(one, other) for one, other in zip(map(told, own), map(told, theirs), strict=True) if one != other]

    assert all_alike(world.run(body).unwrap()) == []


@pytest.mark.parametrize("name", [name for name in payloads.TENSORS if "nested" not in name and "expanded" not in name])
def test_a_tensor_may_be_resized_as_torchs_may(world: rankdrill.World, name: str) -> None:
    def resized(tensor: torch.Tensor) -> Any:
        def tried(do: Any) -> Any:
            try:
                return bool(do() is not None)
            except Exception as error:
                return f"{type(error).__name__}: {error}"[:60]

        with torch.no_grad():
            plain = tensor.detach()
            return [
                tried(lambda: plain.clone().copy_(plain)),
                tried(lambda: plain.resize_(50_000)),
                tried(lambda: plain.untyped_storage().resize_(1 << 20)),
            ]

    def body() -> Any:
        made = payloads.TENSORS[name]()
        received: Any = [None, None] if dist.get_rank() == 0 else None
        gather_object(made, received, timeout=TIMEOUT_S)
        theirs, own = torchs_of(name, made), ours(made)
        found = [resized(each) for each in theirs]
        return found == [resized(each) for each in own] and (not received or found == [resized(r) for r in received])

    assert all_alike(world.run(body).unwrap()) is True


def test_a_tensor_may_take_results_of_any_size(world: rankdrill.World) -> None:
    def body() -> Any:
        for size in (3, 100_000):
            received = ours(torch.ones(size))
            for tensor in received:
                torch.add(torch.ones(2 * size), 1, out=tensor.resize_(0))
                assert tensor.numel() == 2 * size
                assert float(tensor.sum()) == 4 * size
        return True

    assert all_alike(world.run(body).unwrap())


def test_a_view_ships_its_own_elements_only(world: rankdrill.World) -> None:
    def body() -> Any:
        whole = torch.arange(1_000_000)
        views = [whole[:10], whole[::100_000], whole.view(1000, 1000)[:, 3], whole[:10].expand(7, 10), whole[5:9].t()]
        return [(one.untyped_storage().nbytes(), torch.equal(one, view)) for view in views for one in ours(view)[:1]]

    sizes = [(80, True), (80, True), (8000, True), (80, True), (32, True)]
    assert all_alike(world.run(body).unwrap()) == sizes


def test_nested_tensors_are_made(world: rankdrill.World) -> None:
    """Else the two kinds among the payloads would say nothing."""
    assert nested(torch.strided).is_nested
    assert nested(torch.jagged).is_nested
