"""Torch tensors: every dtype that can travel, every way to lie in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from rankdrill.errors import UsageError
from rankdrill_strategies.arguments import check_count, check_flag
from rankdrill_strategies.writing import pasteable

if TYPE_CHECKING:
    import torch

__all__ = ["tensors"]

# complex32 is left out: torch warns, once a process, whenever memory for one is allocated.
_CLASSIC = (
    *("float32", "int64", "bool", "uint8", "int8", "int16", "int32"),
    *("float16", "bfloat16", "float64", "complex64", "complex128"),
)
_NEWER = (
    *("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn_x2"),
)
_SPECIAL = (None, math.nan, math.inf, -math.inf, -0.0)


def tensors(
    *,
    dtypes: Sequence[torch.dtype] | None = None,
    newer_dtypes: bool = False,
    max_dims: int = 3,
    max_side: int = 3,
    sparse: bool = True,
) -> st.SearchStrategy[torch.Tensor]:
    """CPU tensors of random bits: leaves, parameters, views, transposed, strided, expanded, empty, sparse.

    `dtypes` restricts them; by default they are those that pickle can carry. `newer_dtypes` adds uint16,
    uint32, uint64, float8 and float4, which torch 2.13 pickles and then fails to load ("UntypedStorage has
    no attribute 'dtype'"; `torch.save` keeps them): for carriers that bring tensors by themselves.
    Shrinks towards an empty float32 tensor of zero dimensions with the value 0, contiguous, without gradient.
    """
    check_flag("newer_dtypes", newer_dtypes)
    check_flag("sparse", sparse)
    check_count("max_dims", max_dims, at_least=0, at_most=8)
    check_count("max_side", max_side, at_least=1)
    if dtypes is not None and not dtypes:
        raise UsageError(f"dtypes={dtypes!r} leaves nothing to draw; name a dtype, or give None for all")
    return pasteable(st.deferred(lambda: _tensors(_chosen(dtypes, newer_dtypes), max_dims, max_side, sparse)))


def _chosen(dtypes: Sequence[torch.dtype] | None, newer: bool) -> list[torch.dtype]:
    import torch

    if dtypes is not None:
        return list(dtypes)
    names = _CLASSIC + (_NEWER if newer else ())
    return [getattr(torch, name) for name in names if hasattr(torch, name)]  # torch 2.6 lacks the last two


@st.composite
def _tensors(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    dtypes: list[torch.dtype],
    max_dims: int,
    max_side: int,
    sparse: bool,
) -> torch.Tensor:
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, max_side), max_size=max_dims))
    raw = draw(st.binary(min_size=_nbytes(shape, dtype), max_size=_nbytes(shape, dtype)))
    tensor = _fill(raw, dtype, shape, draw(st.sampled_from(_SPECIAL)))
    layouts = [*_LAYOUTS, *([_conjugate] if dtype.is_complex else [])]
    if sparse and dtype.is_floating_point and dtype.itemsize >= 4:
        layouts.append(_sparse)
    return _finish(draw(st.sampled_from(layouts))(tensor), draw(st.sampled_from(("plain", "leaf", "parameter"))))


def _nbytes(shape: list[int], dtype: torch.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _fill(raw: bytes, dtype: torch.dtype, shape: list[int], special: float | None) -> torch.Tensor:
    import torch

    if not raw:
        return torch.empty(shape, dtype=dtype)
    octets = torch.frombuffer(bytearray(raw), dtype=torch.uint8).clone()
    tensor = (octets & 1 if dtype == torch.bool else octets).view(dtype).reshape(shape)
    if special is not None and (dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1)):
        tensor.view(-1)[0] = special
    return tensor


def _finish(tensor: torch.Tensor, role: str) -> torch.Tensor:
    import torch

    # torch fails to load a float8 that requires a gradient ("a leaf Variable ... in an in-place operation").
    differentiable = (tensor.is_floating_point() and tensor.itemsize > 1) or tensor.is_complex()
    if role == "plain" or tensor.is_sparse or not differentiable:
        return tensor
    return torch.nn.Parameter(tensor) if role == "parameter" else tensor.requires_grad_()


# ---------------------------------------------------------------------------------------------- layouts


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(tuple(reversed(range(tensor.ndim))))


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[..., ::2] if tensor.ndim else tensor


def _window(tensor: torch.Tensor) -> torch.Tensor:
    """A part from the middle of a larger storage."""
    return tensor.reshape(-1)[1:-1]


def _element(tensor: torch.Tensor) -> torch.Tensor:
    """One element, zero-dimensional, of a larger storage."""
    return tensor.reshape(-1)[-1] if tensor.numel() else tensor


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """Twice the elements in the same memory: a stride of 0."""
    return tensor[..., None].expand(*tensor.shape, 2)


def _conjugate(tensor: torch.Tensor) -> torch.Tensor:
    """Conjugated lazily: a bit on the tensor, memory untouched."""
    return tensor.conj()


def _sparse(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_sparse() if tensor.ndim else tensor


_LAYOUTS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    _contiguous,
    _transposed,
    _strided,
    _window,
    _element,
    _expanded,
)
