"""Tensors as code: values, dtype, and how they lie in memory."""

from __future__ import annotations

from typing import Any

from rankdrill_strategies.writing.plain import PLAIN

__all__ = ["write_tensor", "write_values"]

_SMALL = 64  # elements of a storage that are written out for a view of it


def write_tensor(tensor: Any) -> str:
    """A tensor with its dtype, layout, strides and role."""
    import torch

    plain = tensor.detach()
    if isinstance(tensor, torch.nn.Parameter):
        fixed = "" if tensor.requires_grad else ", requires_grad=False"
        return f"torch.nn.Parameter({_elements(plain)}{fixed})"
    return _elements(plain) + (".requires_grad_()" if tensor.requires_grad else "")


def _elements(tensor: Any) -> str:
    import torch

    if tensor.layout is torch.sparse_coo:
        halves = f"{_elements(tensor._indices())}, {_elements(tensor._values())}"
        return f"torch.sparse_coo_tensor({halves}, {tuple(tensor.shape)})"
    if tensor.is_conj():
        return f"{_elements(tensor.conj())}.conj()"
    if tensor.is_neg():
        return _whole(tensor.resolve_neg())
    length = tensor.untyped_storage().nbytes() // tensor.itemsize
    if tensor.is_contiguous() and tensor.storage_offset() == 0 and (length == tensor.numel() or length > _SMALL):
        return _whole(tensor)
    if tensor.ndim == 2 and tensor.t().is_contiguous() and tensor.storage_offset() == 0 and length == tensor.numel():
        return f"{_whole(tensor.t())}.t()"
    if length > _SMALL or not tensor.numel():
        return _whole(tensor)
    return f"{_whole(tensor.as_strided((length,), (1,), 0))}{_view(tensor)}"


def _view(tensor: Any) -> str:
    """How a tensor is cut out of its storage."""
    start = tensor.storage_offset()
    if tensor.ndim == 0:
        return f"[{start}]"
    if tensor.ndim == 1 and tensor.stride(0) > 0:
        step = "" if tensor.stride(0) == 1 else f":{tensor.stride(0)}"
        return f"[{start or ''}:{start + (tensor.numel() - 1) * tensor.stride(0) + 1}{step}]"
    return f".as_strided({tuple(tensor.shape)}, {tensor.stride()}, {start})"


def _whole(tensor: Any) -> str:
    """A tensor by its values; in one piece."""
    import torch

    dtype = (
        "" if tensor.dtype in (torch.float32, torch.int64, torch.bool, torch.complex64) else f", dtype={tensor.dtype}"
    )
    shape = tuple(tensor.shape)
    if tensor.dtype.itemsize == 1 and tensor.dtype not in (torch.bool, torch.uint8, torch.int8):
        return f"{_whole(tensor.contiguous().view(torch.uint8))}.view({tensor.dtype})"
    if not tensor.numel() or (tensor.numel() >= _SMALL and not tensor.count_nonzero()):
        kind = dtype or {torch.float32: ""}.get(tensor.dtype, f", dtype={tensor.dtype}")
        return f"torch.zeros({shape}{kind})"
    if counted := _counted(tensor):
        return counted
    return f"torch.tensor({write_values(tensor.tolist())}{dtype})"


def write_values(values: Any) -> str:
    """Nested lists of numbers."""
    if isinstance(values, list):
        return "[" + ", ".join(map(write_values, values)) + "]"
    return PLAIN[type(values)](values) if type(values) in PLAIN else repr(values)


def _counted(tensor: Any) -> str | None:
    """One whose values count up."""
    import torch

    if tensor.numel() < 4 or tensor.is_complex() or tensor.dtype is torch.bool:
        return None
    flat = tensor.reshape(-1)
    first, last = flat[0].item(), flat[-1].item()
    if last != first + flat.numel() - 1 or not torch.equal(flat, first + torch.arange(flat.numel()).to(flat.dtype)):
        return None
    floats = ".0" if tensor.dtype is torch.float32 else ""
    kind = "" if floats or tensor.dtype is torch.int64 else f", dtype={tensor.dtype}"
    bounds = f"{int(last) + 1}{floats}" if first == 0 else f"{int(first)}, {int(last) + 1}{floats}"
    return f"torch.arange({bounds}{kind})" + (f".reshape{tuple(tensor.shape)}" if tensor.ndim != 1 else "")
