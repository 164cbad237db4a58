"""Accesses to memory that is in use are seen, whatever function makes them; looking at a tensor's shape is none."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from rankdrill.boundary import modes_seam
from rankdrill.boundary.accesses import AccessWatch, Use
from rankdrill.boundary.regions import Extent


class InUse:
    """One tensor that is in use."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.start, self.end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        self.seen: list[Use] = []

    def __bool__(self) -> bool:
        return True

    def concerns(self, extent: Extent) -> bool:
        return extent.meets(self.start, self.end)

    def touched(self, extent: Extent, use: Use) -> None:
        if self.concerns(extent):
            self.seen.append(use)


@contextmanager
def watched(tensor: torch.Tensor) -> Iterator[list[Use]]:
    used = InUse(tensor)
    watch = AccessWatch(used)
    watch.begin()
    try:
        yield used.seen
    finally:
        watch.end()
        assert not torch.overrides.has_torch_function((tensor,))


def with_grad(grad: torch.Tensor) -> torch.Tensor:
    weight = torch.zeros(grad.shape, requires_grad=True)
    weight.grad = grad
    return weight


READS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x + 1,
    lambda x: x.sum(),
    lambda x: x[0, 0].item(),
    lambda x: float(x[1, 1]),
    lambda x: x.tolist(),
    lambda x: repr(x),
    lambda x: f"{x}",
    lambda x: f"{x[0, 0]:.2f}",
    lambda x: bool((x == x).all()),
    lambda x: torch.cat([torch.ones(1, 3), x]),
    lambda x: x.clone(),
    lambda x: x.to(torch.float64),
    lambda x: x.t().contiguous(),
    lambda x: torch.nn.functional.linear(torch.ones(3), x),
    lambda x: 1.0 in x,
    lambda x: torch.testing.assert_close(x, torch.ones(2, 3)),
    lambda x: torch.zeros(2, 3).copy_(x),
    lambda x: copy.deepcopy(x),
    lambda x: torch.index_select(x, 0, torch.tensor([0])),
]
WRITES: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.zero_(),
    lambda x: x.__setitem__(0, 3.0),
    lambda x: x.view(-1)[2:3].fill_(1),
    lambda x: x.data.add_(1),
    lambda x: torch.add(torch.ones(2, 3), 1, out=x),
    lambda x: torch.nn.init.normal_(x),
    lambda x: x.t()[1].mul_(2),
    lambda x: torch.nn.utils.clip_grad_value_(with_grad(x), 0.5),
    lambda x: x.detach().squeeze().random_(),
]
HARMLESS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: (x.shape, x.dtype, x.device, x.numel(), x.dim(), x.size(0), x.stride(), x.storage_offset(), len(x)),
    lambda x: (x.is_contiguous(), x.is_pinned(), x.is_floating_point(), x.is_set_to(x), x.requires_grad, x.is_leaf),
    lambda x: (x.data_ptr(), x.untyped_storage(), x.element_size(), x.nbytes, x.grad, x.grad_fn, hash(x), id(x)),
    lambda x: (x[0], x[:, 1], x[..., None], x.view(-1), x.t(), x.mT, x.unbind(), x.chunk(2), list(x)),
    lambda x: (x.detach(), x.data, x.reshape(6), x.flatten(), x.expand(4, 2, 3), x.unfold(0, 1, 1), x.diagonal()),
    lambda x: (x.contiguous(), x.float(), x.to("cpu"), x.numpy(), torch.as_tensor(x), torch.nn.Parameter(x)),
    lambda x: (torch.zeros_like(x), torch.empty_like(x), torch.rand_like(x), x.new_zeros(3), x.new_empty(3)),
    lambda x: (torch.result_type(x, 1), torch.is_tensor(x), x.is_same_size(x), x.unsqueeze_(0).squeeze_(0)),
    lambda x: torch.ones(2, 3).sum(),
]


@pytest.mark.parametrize("access", READS)
def test_a_read(access: Callable[[torch.Tensor], Any]) -> None:
    tensor = torch.ones(2, 3)
    with watched(tensor) as seen:
        access(tensor)
    assert seen
    assert set(seen) == {Use.READ}


@pytest.mark.parametrize("access", WRITES)
def test_a_write(access: Callable[[torch.Tensor], Any]) -> None:
    tensor = torch.ones(2, 3)
    with watched(tensor) as seen:
        access(tensor)
    assert Use.WRITE in seen


@pytest.mark.parametrize("access", HARMLESS)
def test_what_looks_at_no_element(access: Callable[[torch.Tensor], Any]) -> None:
    tensor = torch.ones(2, 3)
    with watched(tensor) as seen:
        access(tensor)
    assert seen == []


def test_a_backward_pass_names_no_tensor_that_it_writes() -> None:
    layer = torch.nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad is not None
    loss = layer(torch.ones(1, 2)).sum()
    with watched(layer.weight.grad) as seen:
        loss.backward()
    assert Use.WRITE in seen


def test_the_parameters_that_an_optimizer_steps() -> None:
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=True)
    layer(torch.ones(1, 2)).sum().backward()
    with watched(layer.weight) as seen:
        optimizer.step()
    assert Use.WRITE in seen


def test_what_a_library_prints_is_nobodys_mistake() -> None:
    """As pytest does with the values of an assertion that has failed."""
    tensor = torch.ones(2, 3)
    with watched(tensor) as seen:
        assert reprlib.repr(tensor).startswith("tensor(")
    assert seen == []


class Passing(TorchFunctionMode):
    """Lets everything pass, and counts sums."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.passed += func is torch.Tensor.sum
        return func(*args, **(kwargs or {}))


def test_modes_of_the_users_come_and_go_in_any_order() -> None:
    tensor, used = torch.ones(2), InUse(torch.ones(2))
    watch, first, second = AccessWatch(used), Passing(), Passing()
    with first:
        watch.begin()
        with second, torch.device("meta"):
            assert torch.ones(1).device.type == "meta"
            watch.begin()  # once is enough
            tensor.sum()
        tensor.sum()
        watch.end()
        tensor.sum()
    assert (first.passed, second.passed) == (3, 1)
    assert not torch.overrides.has_torch_function((tensor,))
    with torch.device("meta"):
        watch.begin()
        with first:
            pass
        assert torch.ones(1).device.type == "meta"
    assert torch.ones(1).device.type == "cpu"
    watch.end()
    assert not torch.overrides.has_torch_function((tensor,))


@pytest.mark.parametrize("begun_before", [False, True])
def test_the_default_device_may_be_set_meanwhile(begun_before: bool) -> None:
    watch = AccessWatch(InUse(torch.ones(2)))
    if begun_before:
        watch.begin()
    torch.set_default_device("meta")
    watch.begin()
    assert torch.ones(1).device.type == "meta"
    torch.set_default_device(None)
    assert torch.ones(1).device.type == "cpu"
    watch.end()
    assert not torch.overrides.has_torch_function((torch.ones(1),))


def test_a_mode_below_all_others_sees_what_they_let_pass() -> None:
    tensor = torch.ones(2)
    with watched(tensor) as seen, Passing():
        tensor.sum()
    assert seen == [Use.READ]


def test_an_operator_is_known_with_what_it_writes() -> None:
    add = torch.ops.aten.add_.Tensor
    assert modes_seam.is_operator(add)
    assert modes_seam.arguments_of(add) == (("self", True), ("other", False), ("alpha", False))
    assert not modes_seam.is_operator(torch.add)
