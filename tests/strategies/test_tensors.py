"""Tensors of every dtype and every layout are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import Phase, find, given, settings

from rankdrill.errors import UsageError
from rankdrill_strategies import same, tensors

PICKLED = {
    *("float32", "int64", "bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float64"),
    *("complex64", "complex128"),
}
NEWER = {
    *("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
}
some = settings(max_examples=1000, database=None, deadline=None, derandomize=True, phases=[Phase.generate])


@pytest.fixture(scope="module")
def drawn() -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    some(given(tensors(newer_dtypes=True))(lambda tensor: found.append(tensor)))()
    return found


def test_every_dtype_is_drawn(drawn: list[torch.Tensor]) -> None:
    names = {str(tensor.dtype).removeprefix("torch.") for tensor in drawn}
    assert names == {name for name in PICKLED | NEWER if hasattr(torch, name)}


@pytest.mark.nightly
def test_only_dtypes_that_pickle_can_carry_are_drawn_unless_asked() -> None:
    names: set[str] = set()
    some(given(tensors(max_dims=0))(lambda tensor: names.add(str(tensor.dtype).removeprefix("torch."))))()
    assert names == PICKLED


LAYOUTS: dict[str, Callable[[torch.Tensor], bool]] = {
    "zero-dimensional": lambda tensor: tensor.ndim == 0,
    "empty": lambda tensor: tensor.numel() == 0,
    "of three dimensions, none of them 1": lambda tensor: tensor.ndim == 3 and min(tensor.shape) > 1,
    "not contiguous": lambda tensor: not tensor.is_sparse and not tensor.is_contiguous(),
    "transposed": lambda tensor: (
        not tensor.is_sparse
        and tensor.ndim == 2
        and tensor.numel() > 4
        and not tensor.is_contiguous()
        and tensor.t().is_contiguous()
    ),
    "expanded": lambda tensor: not tensor.is_sparse and 0 in tensor.stride() and tensor.numel() > 1,
    "within a larger storage": lambda tensor: (
        not tensor.is_sparse
        and tensor.storage_offset() > 0
        and tensor.untyped_storage().nbytes() > tensor.numel() * tensor.itemsize > 0
    ),
    "requiring a gradient": lambda tensor: tensor.requires_grad,
    "a parameter": lambda tensor: isinstance(tensor, torch.nn.Parameter),
    "a lazy conjugate": lambda tensor: tensor.is_conj(),
    "sparse": lambda tensor: tensor.is_sparse,
    "with NaN": lambda tensor: not tensor.is_sparse and tensor.is_floating_point() and bool(tensor.isnan().any()),
    "with infinity": lambda tensor: (
        tensor.dtype is torch.float32 and not tensor.is_sparse and bool(tensor.isinf().any())
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_drawn(layout: str, drawn: list[torch.Tensor]) -> None:
    assert any(LAYOUTS[layout](tensor) for tensor in drawn)


def test_a_tensor_shrinks_to_zero() -> None:
    quickly = settings(max_examples=2000, database=None, deadline=None, derandomize=True)
    assert same(find(tensors(), lambda tensor: True, settings=quickly), torch.zeros(()))
    smallest = find(tensors(), lambda tensor: tensor.ndim == 2 and tensor.numel() > 1, settings=quickly)
    assert same(smallest, torch.zeros(1, 2)) or same(smallest, torch.zeros(2, 1))


@settings(max_examples=100, deadline=None)
@given(tensors(dtypes=[torch.int8], max_dims=1, max_side=2, sparse=False))
def test_it_keeps_to_what_was_asked(tensor: torch.Tensor) -> None:
    assert tensor.dtype is torch.int8
    assert tensor.ndim <= 2  # `expand` adds one
    assert all(side <= 2 for side in tensor.shape)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"dtypes": []}, r"dtypes=\[\] leaves nothing to draw; name a dtype, or give None for all"),
        ({"max_dims": -1}, "max_dims=-1 is out of range; give at least 0 and at most 8"),
        ({"max_dims": 9}, "max_dims=9 is out of range"),
        ({"max_side": 0}, "max_side=0 is out of range; give at least 1"),
        ({"sparse": 1}, "sparse=1 is no switch"),
        ({"newer_dtypes": None}, "newer_dtypes=None is no switch"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tensors(**arguments)
