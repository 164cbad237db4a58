"""What stands in for a function of torch is taken for it by whoever tells torch's functions apart."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode, get_testing_overrides, is_tensor_method_or_property, resolve_name

from tests.faults.here import rank_here

LARGE = 2000  # numbers: such a reservation is a step
KNOWN_BEFORE = {torch.stack: "several", torch.zeros_like: "one", torch.Tensor.resize_: "method"}


class Likeness:
    """No tensor, but given to torch's functions as one: what they do is looked up in a table."""

    table: dict[Any, str]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.table.get(func, NotImplemented)


class Subclass(torch.Tensor):
    """A tensor that overrides nothing."""


class Zeros(TorchFunctionMode):
    """Counts the calls of one function, by identity."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is torch.zeros
        return func(*args, **(kwargs or {}))


def table_now() -> dict[Any, str]:
    return {torch.stack: "several", torch.zeros_like: "one", torch.Tensor.resize_: "method"}


@pytest.mark.parametrize("table", [table_now, lambda: KNOWN_BEFORE])
def test_a_table_filled_before_or_since_finds_the_function(table: Callable[[], dict[Any, str]]) -> None:
    with rank_here():
        function: Any = torch.stack
        Likeness.table = table()
        assert function([Likeness(), Likeness()]) == "several"
        assert function(tensors=(torch.ones(1), Likeness())) == "several"
        one: Any = torch.zeros_like
        assert one(Likeness()) == "one"
        with pytest.raises(TypeError, match=r"torch\.clone"):
            torch.clone(Likeness())  # type: ignore[arg-type]
    assert {torch.stack: 1}.get(function) == 1, "nor is it lost when this is over"


def test_a_mode_may_ask_which_function_it_is() -> None:
    with rank_here() as here:
        with Zeros() as mode:
            torch.zeros(LARGE)
            torch.ones(1)
        assert mode.calls == 1
        assert [record.step.op for record in here.view] == ["zeros"]


def test_tensors_of_a_class_stay_of_it_and_are_one_step() -> None:
    with rank_here() as here:
        given = torch.ones(3).as_subclass(Subclass)
        assert type(torch.stack([given] * LARGE)) is Subclass
        given.resize_(LARGE)
        assert [record.step.op for record in here.view] == ["stack", "resize_"]


def test_it_is_named_printed_copied_and_pickled_as_torchs() -> None:
    plain = torch.stack
    with rank_here():
        assert repr(torch.stack) == repr(plain)
        assert resolve_name(torch.stack) == "torch.stack"
        assert torch.stack in get_testing_overrides()
        assert is_tensor_method_or_property(torch.Tensor.resize_)
        assert copy.deepcopy(torch.stack) == plain
        assert torch.stack != torch.cat
        assert pickle.loads(pickle.dumps(torch.stack)) is plain
        assert torch.fx.symbolic_trace(lambda x: torch.stack([x, x]))(torch.ones(2)).shape == (2, 2)


def test_the_compiler_goes_through_without_a_break() -> None:
    with rank_here():
        compiled = torch.compile(lambda x: torch.stack([x, x]) + torch.zeros_like(x), backend="eager", fullgraph=True)
        assert compiled(torch.ones(LARGE)).shape == (2, LARGE)
