"""How tensors and arrays are pickled: their own elements as one raw buffer, out of band."""

from __future__ import annotations

import copyreg
import ctypes
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import torch

__all__ = ["TensorReductions", "is_plain", "memory_of"]

__tracebackhide__ = True  # by pytest, whose last line is then the one that called

# Pickle's own reductions: a callable, its arguments, and up to four optional parts.
_Reduction = tuple[Any, ...]


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The memory of a tensor of bytes, which whoever uses it keeps alive; `owner_of` knows whose it is.

    Not by way of `tensor.numpy()`, for then torch resizes that tensor no more.
    """
    memory: Any = (ctypes.c_ubyte * tensor.numel()).from_address(tensor.data_ptr())
    memory.owner = tensor
    return memoryview(memory).cast("B")


def owner_of(raw: Any) -> torch.Tensor | None:
    """The tensor whose memory `raw` is."""
    owner = getattr(getattr(raw, "obj", None), "owner", None)
    return owner if isinstance(owner, torch.Tensor) else None


class TensorReductions:
    """A pickler's `dispatch_table` that also knows subclasses of `torch.Tensor`, and arrays that cannot be written to.

    A table rather than a `Pickler` subclass with `reducer_override`, so that `pickle.Pickler` is looked up where it is
    called and whoever replaces it is obeyed.
    """

    def __getitem__(self, cls: type) -> Callable[[Any], _Reduction | str]:
        if issubclass(cls, torch.Tensor):
            return reduce_tensor
        if cls is numpy.ndarray:
            return reduce_array
        return copyreg.dispatch_table[cls]


def reduce_tensor(tensor: torch.Tensor) -> _Reduction | str:
    """Reduce a tensor to its elements; what is no plain block of numbers is left to torch's own reduction.

    A view gives its own elements, not its storage, and keeps its strides unless there are gaps between them. Python
    attributes travel along; backward hooks do not. A CUDA tensor is loaded onto the receiver's current CUDA device, or
    the CPU where it has none.
    """
    if not is_plain(tensor):
        reduction: _Reduction = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        return reduction
    with torch.no_grad():
        base = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        elements, stride = _elements(base)
        raw: Any = elements.cpu().view(torch.uint8).numpy()
    kind = type(tensor)
    arguments = (
        pickle.PickleBuffer(raw) if raw.size else None,
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        stride,
        tensor.requires_grad,
        tensor.device.type,
        None if kind is torch.Tensor else kind,
    )
    state = tensor.__dict__
    if state:
        return (rebuild_tensor, arguments, dict(state), None, None, restore_attributes)
    return (rebuild_tensor, arguments)


def _elements(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
    """The elements that `tensor` refers to, in one row and each but once, and its strides over such a row."""
    stride = tensor.stride()
    if not tensor.numel():
        return tensor.as_strided((0,), (1,)), stride
    # Along an expanded dimension there is but one element, and overlapping windows have fewer than they show.
    shape = [1 if step == 0 else length for length, step in zip(tensor.shape, stride, strict=True)]
    reach = 1 + sum((length - 1) * step for length, step in zip(shape, stride, strict=True))
    if reach <= math.prod(shape):
        return tensor.as_strided((reach,), (1,)), stride
    dense = tensor.as_strided(shape, stride).contiguous()
    kept = [0 if step == 0 else own for own, step in zip(dense.stride(), stride, strict=True)]
    return dense.as_strided((dense.numel(),), (1,)), tuple(kept)


def rebuild_tensor(
    raw: Any,
    dtype: str,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    device: str,
    kind: type[torch.Tensor] | None,
) -> torch.Tensor:
    """The inverse of `reduce_tensor`: a writable tensor over `raw`, which nothing else refers to."""
    wanted: torch.dtype = getattr(torch, dtype)
    if raw is None:
        tensor = torch.empty_strided(shape, stride, dtype=wanted, device="cpu")
    else:
        tensor = _bytes_in(raw).view(wanted).as_strided(shape, stride)
    if device == "cuda" and torch.cuda.is_available():
        tensor = tensor.cuda()
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    if kind is not None:
        tensor = tensor.as_subclass(kind)
    return tensor.requires_grad_() if requires_grad else tensor


def _bytes_in(raw: Any) -> torch.Tensor:
    """A tensor of bytes over `raw`; what lies in torch's memory, or is small, can be resized."""
    owner = owner_of(raw)
    if owner is not None:
        return owner
    found = torch.frombuffer(raw, dtype=torch.uint8)
    return found.clone() if isinstance(raw, bytearray) else found


def reduce_array(array: Any) -> _Reduction | str:
    """As NumPy does, but an array that cannot be written to can be where it arrives, as in torch's gathers."""
    reduction: _Reduction = array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if array.flags.writeable or len(reduction) != 2:
        return reduction
    function, arguments = reduction
    return rebuild_array, (function, *arguments)


def rebuild_array(function: Callable[..., Any], *arguments: Any) -> Any:
    """The inverse of `reduce_array` for such an array."""
    return function(*arguments).copy(order="K")


def restore_attributes(tensor: torch.Tensor, state: dict[str, Any]) -> None:
    """Put a tensor's Python attributes back; `Tensor.__setstate__` is for something else."""
    tensor.__dict__.update(state)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is a plain block of numbers, and pickles as one."""
    kind = type(tensor)
    reduces_itself = kind.__reduce_ex__ is not torch.Tensor.__reduce_ex__ or "__reduce__" in _own_names(kind)
    if kind is not torch.nn.Parameter and (reduces_itself or _dispatches(kind)):
        return False
    plain = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized
    return plain and tensor.device.type in ("cpu", "cuda")


def _own_names(kind: type) -> set[str]:
    """Names defined by `kind` and its bases below `torch.Tensor`."""
    return {name for base in kind.__mro__[: kind.__mro__.index(torch.Tensor)] for name in vars(base)}


def _dispatches(kind: type[torch.Tensor]) -> bool:
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
