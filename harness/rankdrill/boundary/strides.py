"""Tensors that lie in another order than their indices say: transposed, permuted, ``channels_last``.

gloo counts elements as they lie in memory, so in some ops all ranks' tensors must lie in the same order, whatever it
is, or both ends of what one gives the other. Tried op by op (`tests/worlds/test_orders.py` and `test_orders_by_twos.py`
try it again); elsewhere torch or gloo copies such tensors itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import torch

from rankdrill.boundary import torch_seam

__all__ = ["MINDING_ORDER", "MINDING_ORDER_BY_TWOS", "Laid", "Order", "laid_in", "memory_order", "orders_of"]

MINDING_ORDER = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter_tensor"})
"""Where what a tensor of one rank's meets of another's goes by memory."""
Order: TypeAlias = tuple[int, ...]
"""Dimensions of more than one element, from those that lie furthest apart to those side by side."""
MINDING_ORDER_BY_TWOS = frozenset({"reduce_scatter", "scatter"})
"""Where what is meant for one rank meets that rank's output."""
Laid: TypeAlias = tuple[tuple[Order | None, ...], ...]
"""By rank in the group: the order of what is given to each, and of what is taken from each; None where nothing is."""


def orders_of(tensors: Iterable[torch.Tensor], group: Any) -> tuple[Order, ...]:
    """The order in memory of each, where one lies in another than that of its indices; else nothing.

    `group` is the one that they are given to, None where nobody knows.
    """
    those = list(tensors)
    orders = tuple([memory_order(tensor) for tensor in those])
    return orders if any(orders) and _goes_by_memory(group, those[0]) else ()


def _goes_by_memory(group: Any, tensor: torch.Tensor) -> bool:
    """Whether what moves `tensor` does: gloo, and NCCL, which takes ``channels_last``, and refuses others."""
    if group is None:
        return False
    if tensor.device.type == "cpu":
        return torch_seam.backend_on_cpu(group.inner) == "gloo"
    return bool(group.on_device or tensor.device.type in group.devices)


def laid_in(
    op: str, given: Sequence[torch.Tensor], taken: Sequence[torch.Tensor], group: Any, rank: int, size: int, root: int
) -> Laid:
    """How what `rank` has `given` to each of `size` ranks lies, and what it has `taken`; nothing if all is in order.

    Nor is there if a rank's tensors have different shapes, which gloo refuses.
    """
    shapes = {tensor.shape for tensor in (*given, *taken)}
    orders = [memory_order(tensor) for tensor in (*given, *taken)]
    whole = len(taken) == 1 and len(given) in (0, size) and size > 1
    if not any(orders) or len(shapes) != 1 or not whole or not _goes_by_memory(group, taken[0]):
        return ()
    to_each: list[Order | None] = list(orders[:-1]) or [None] * size
    to_each[rank] = None  # in reduce_scatter its own part is copied to its output; of scatter's the rank itself knows
    sources = range(size) if op == "reduce_scatter" else (root,)
    from_each = [orders[-1] if member in sources and member != rank else None for member in range(size)]
    return tuple(to_each), tuple(from_each)


def memory_order(tensor: torch.Tensor) -> Order:
    """Nothing of a tensor that is contiguous, or has gaps, which are closed where they are let."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
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
