"""Tensors that lie in another order than their indices say: transposed, permuted, ``channels_last``.

gloo counts elements as they lie in memory, so in some ops all ranks' tensors must lie in the same order, whatever it
is. Tried op by op (`tests/worlds/test_orders.py` tries it again); elsewhere torch or gloo copies such tensors itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import torch

from rankdrill.boundary import torch_seam

__all__ = ["MINDING_ORDER", "Order", "memory_order", "orders_of"]

MINDING_ORDER = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter_tensor"})
"""Where what a tensor of one rank's meets of another's goes by memory."""
Order: TypeAlias = tuple[int, ...]
"""Dimensions of more than one element, from those that lie furthest apart to those side by side."""


def orders_of(tensors: Iterable[torch.Tensor], group: Any) -> tuple[Order, ...]:
    """The order in memory of each, where one lies in another than that of its indices; else nothing.

    `group` is the one that they are given to, None where nobody knows.
    """
    orders = tuple([memory_order(tensor) for tensor in tensors])
    if not any(orders) or group is None or torch_seam.backend_on_cpu(group.inner) != "gloo":
        return ()
    return orders


def memory_order(tensor: torch.Tensor) -> Order:
    """Nothing of a tensor that is contiguous, or has gaps, which are closed where they are let, or lies elsewhere."""
    if tensor.layout is not torch.strided or tensor.is_contiguous() or tensor.device.type != "cpu":
        return ()
    shape = tensor.shape
    rows = [(stride, place) for place, stride in enumerate(tensor.stride()) if shape[place] > 1]
    side_by_side = 1
    for stride, place in sorted(rows):
        if stride != side_by_side:
            return ()
        side_by_side *= shape[place]
    order = tuple(place for _, place in sorted(rows, reverse=True))
    return () if list(order) == sorted(order) else order
