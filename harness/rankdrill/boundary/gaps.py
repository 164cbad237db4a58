"""Tensors whose elements do not lie side by side, where gloo takes for granted that they do.

Tried on gloo of torch 2.13, op by op and stride by stride (`tests/worlds/test_gaps.py` tries it again): it works on
as many elements as the tensor has, counted from its first one on in memory. So of a view with gaps it sends what lies
in them, and overwrites that; of an expanded one it works on what lies behind. Other ops copy such tensors themselves
(``all_gather``, ``all_to_all``, ``reduce_scatter_tensor``, from torch 2.9 on ``gather``, all that is coalesced or
functional), or torch refuses them (``send``, ``recv``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from rankdrill.boundary import torch_seam
from rankdrill.boundary.contracts import flatten
from rankdrill.boundary.strides import memory_order

__all__ = ["MINDING_GAPS", "first_out_of_order", "first_with_gaps", "has_gaps"]

_BOTH = ("tensors", "outputs")
MINDING_GAPS: dict[str, tuple[str, ...]] = {
    "all_reduce": ("tensors",),
    "reduce": ("tensors",),
    "broadcast": ("tensors",),
    "scatter": _BOTH,
    "reduce_scatter": ("outputs",),
    "all_to_all_single": ("outputs",),
    **({"gather": ("tensors",)} if torch_seam.GATHERS_AS_IT_LIES else {}),
}
"""The ops that mind, and the arguments in which they do."""
_MIND_ORDER = frozenset({"all_to_all_single", "gather"})
"""Where the other side is known to lie in order, so that what is dense but transposed is misread, too."""


def first_with_gaps(op: str, args: dict[str, Any]) -> torch.Tensor | None:
    """The first tensor that `op` is given for gloo to misread, if there is one."""
    for tensor in _minded(op, args):
        if not tensor.is_contiguous() and (op in _MIND_ORDER or has_gaps(tensor)):
            return tensor
    return None


def first_out_of_order(op: str, args: dict[str, Any], place: int) -> torch.Tensor | None:
    """Of what the rank at `place` scatters to itself, if it lies in another order than what it takes it into.

    The one that is not contiguous: what is given, if neither is.
    """
    given, taken = ([*flatten(args.get(name))] for name in _BOTH)
    if op != "scatter" or not given or len(taken) != 1 or place >= len(given):
        return None
    own, into = given[place], taken[0]
    if own.device.type != "cpu" or own.shape != into.shape or memory_order(own) == memory_order(into):
        return None
    return into if own.is_contiguous() else own


def _minded(op: str, args: dict[str, Any]) -> Iterator[torch.Tensor]:
    for name in MINDING_GAPS.get(op, ()):
        for tensor in flatten(args.get(name)):
            if tensor.layout is torch.strided and tensor.device.type == "cpu":
                yield tensor


def has_gaps(tensor: torch.Tensor) -> bool:
    """Whether its elements, in whatever order, are not those from its first one on in memory."""
    side_by_side = 1
    for stride, count in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if count == 1:
            continue
        if stride != side_by_side:
            return tensor.numel() > 0
        side_by_side *= count
    return False
