"""How tensors are pickled: their own elements as one raw buffer, out of band."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["TensorReductions", "is_plain"]

# Pickle's own reductions: a callable, its arguments, and up to four optional parts.
_Reduction = tuple[Any, ...]


class TensorReductions:
    """A pickler's `dispatch_table` that also knows subclasses of `torch.Tensor`.

    A table rather than a `Pickler` subclass with `reducer_override`, so that `pickle.Pickler` is looked up where it is
    called and whoever replaces it is obeyed.
    """

    def __getitem__(self, cls: type) -> Callable[[Any], _Reduction | str]:
        if issubclass(cls, torch.Tensor):
            return reduce_tensor
        return copyreg.dispatch_table[cls]


def reduce_tensor(tensor: torch.Tensor) -> _Reduction | str:
    """Reduce a tensor to its elements; what is no plain block of numbers is left to torch's own reduction.

    A view gives its own elements, not its storage. Python attributes travel along; backward hooks do not. A CUDA tensor
    is loaded onto the receiver's current CUDA device, or the CPU where it has none.
    """
    if not is_plain(tensor):
        reduction: _Reduction = tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        return reduction
    with torch.no_grad():
        base = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        # Not reshape: an empty tensor keeps its stride through it, and cannot be viewed as bytes.
        raw: Any = base.cpu().contiguous().as_strided((base.numel(),), (1,)).view(torch.uint8).numpy()
    kind = type(tensor)
    arguments = (
        pickle.PickleBuffer(raw) if raw.size else None,
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tensor.requires_grad,
        tensor.device.type,
        None if kind is torch.Tensor else kind,
    )
    state = tensor.__dict__
    if state:
        return (rebuild_tensor, arguments, dict(state), None, None, restore_attributes)
    return (rebuild_tensor, arguments)


def rebuild_tensor(
    raw: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool, device: str, kind: type[torch.Tensor] | None
) -> torch.Tensor:
    """The inverse of `reduce_tensor`: a writable tensor over `raw`, which nothing else refers to."""
    wanted: torch.dtype = getattr(torch, dtype)
    if raw is None:
        tensor = torch.empty(shape, dtype=wanted, device="cpu")
    else:
        tensor = torch.frombuffer(raw, dtype=torch.uint8).view(wanted).reshape(shape)
    if device == "cuda" and torch.cuda.is_available():
        tensor = tensor.cuda()
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    if kind is not None:
        tensor = tensor.as_subclass(kind)
    return tensor.requires_grad_() if requires_grad else tensor


def restore_attributes(tensor: torch.Tensor, state: dict[str, Any]) -> None:
    """Put a tensor's Python attributes back; `Tensor.__setstate__` is for something else."""
    tensor.__dict__.update(state)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is a plain block of numbers, and pickles as one."""
    kind = type(tensor)
    reduces_itself = kind.__reduce_ex__ is not torch.Tensor.__reduce_ex__ or "__reduce__" in _own_names(kind)
    if kind is not torch.nn.Parameter and (reduces_itself or _dispatches(kind)):
        return False
    return tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type in ("cpu", "cuda")


def _own_names(kind: type) -> set[str]:
    """Names defined by `kind` and its bases below `torch.Tensor`."""
    return {name for base in kind.__mro__[: kind.__mro__.index(torch.Tensor)] for name in vars(base)}


def _dispatches(kind: type[torch.Tensor]) -> bool:
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
